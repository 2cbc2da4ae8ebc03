import io

from rich.console import Console

from plancha_engine.report import ConsoleReport, LineReport


def test_lines_tell_each_tenth_of_a_transfer_once() -> None:
    lines: list[str] = []

    with LineReport(lines.append).transfer("fetching", 20_000_000) as moved:
        for done in (0, 1_000_000, 2_000_000, 2_500_000, 11_000_000, 20_000_000, 20_000_000):
            moved(done)

    assert lines == [
        "fetching: 20 MB",
        "fetching: 2 of 20 MB",
        "fetching: 11 of 20 MB",
        "fetching: 20 of 20 MB",
    ]


def test_a_terminal_shows_a_bar_and_a_pipe_lines() -> None:
    for terminal in (True, False):
        output = io.StringIO()
        report = ConsoleReport(Console(file=output, force_terminal=terminal, width=100))

        report.say("looking [at] this")
        with report.transfer("fetching [it]", 4_000_000) as moved:
            moved(4_000_000)

        text = output.getvalue()
        assert "looking [at] this" in text and "fetching [it]" in text
        assert ("4.0/4.0 MB" in text) == terminal
        assert ("\x1b" in text) == terminal
