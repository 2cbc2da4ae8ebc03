"""How a start's progress becomes phases and percent, and what of it goes to the log."""

from collections.abc import Iterator
from contextlib import contextmanager

from structlog.testing import capture_logs

from plancha.startup import Stage
from plancha_app.progress import StagedReport, loading
from plancha_engine.report import Moved


class Silent:
    """A report that keeps what was moved."""

    def __init__(self) -> None:
        self.moved: list[int] = []

    def say(self, text: str) -> None: ...

    @contextmanager
    def transfer(self, what: str, total: int) -> Iterator[Moved]:
        yield self.moved.append


def test_a_download_tells_every_percent_once_and_its_own_report_every_byte() -> None:
    stages: list[Stage] = []
    report = Silent()
    staged = StagedReport(report, stages.append)
    staged.say("asking example.org")
    with staged.transfer("fetching acme/secret", 1000) as moved:
        for done in (1, 9, 10, 505, 509, 1000, 1001):
            moved(done)
    assert stages == [
        Stage("fetching"),
        *(Stage("fetching", percent) for percent in (0, 1, 50, 100)),
    ]
    assert report.moved == [1, 9, 10, 505, 509, 1000, 1001]


def test_an_executors_own_words_are_a_line_and_no_phase_of_its_own() -> None:
    stages: list[Stage] = []
    with capture_logs() as logs, loading(stages.append) as progress:
        progress("reading /secret/weights")
        progress(Stage("loading weights", 40))
        progress(Stage("warming up", text="running one step"))
    assert [(stage.phase, stage.percent) for stage in stages] == [
        ("loading", None),
        ("loading weights", 40),
        ("warming up", None),
    ]
    lines = [line["doing"] for line in logs if line["event"] == "loading"]
    assert lines == ["reading /secret/weights", "running one step"]
