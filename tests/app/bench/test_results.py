"""Results in files: read again, compared, drawn."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import attrs
import orjson
import pytest

from plancha_app.bench.client import Outcome
from plancha_app.bench.command import measure
from plancha_app.bench.comparison import ratios, show_comparison
from plancha_app.bench.job import Job
from plancha_app.bench.plot import draw_files
from plancha_app.bench.result_file import read_outcomes, read_summary, write
from plancha_app.bench.summary import summarise
from plancha_app.bench.workload import Ask
from plancha_app.complaints import Mistake


def outcomes(scale: float = 1.0, count: int = 40, error: str | None = None) -> list[Outcome]:
    """Requests a tenth of a second apart, with five tokens at `scale` * 20 ms each."""
    found = []
    for number in range(count):
        sent_s = number / 10
        events = [sent_s + scale * (0.1 + 0.02 * token) for token in range(5)]
        found.append(
            Outcome(
                ask=Ask(number, None, 10, 5, ""),
                sent_s=sent_s,
                ended_s=events[-1],
                error=error,
                prompt_tokens=10,
                output_tokens=5,
                events=events,
                finish_reason="length",
            )
        )
    return found


def written(path: Path, found: list[Outcome]) -> Path:
    with path.open("wb") as file:
        write(file, found)
    return path


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", outcomes())

    assert len(read_outcomes(path)) == 40
    assert read_summary(path) == summarise(outcomes())


def test_a_summary_alone_can_be_compared_and_not_drawn(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_bytes(orjson.dumps(summarise(outcomes())))

    assert read_summary(path) == summarise(outcomes())
    with pytest.raises(Mistake, match="summary alone"):
        read_outcomes(path)


@pytest.mark.parametrize(
    "text", ["", "no json", "[]", "{}", '{"requests": 1}\n{}', '{"sent_s": 1}']
)
def test_what_is_no_result_is_a_mistake(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)

    with pytest.raises(Mistake, match="is no result"):
        read_summary(path)


def test_ratios_are_of_the_second_to_the_first() -> None:
    found = ratios(summarise(outcomes()), summarise(outcomes(scale=2.0)))

    assert found["ttft_s"] == {"mean": 2.0, "p50": 2.0, "p90": 2.0, "p99": 2.0}
    assert found["inter_token_s"]["p50"] == 2.0
    assert found["output_tokens_per_s"] == pytest.approx((3.9 + 0.18) / (3.9 + 0.36), abs=1e-3)


def test_what_one_of_them_lacks_has_no_ratio() -> None:
    failed = summarise(outcomes(error="HTTP 503"))

    found = ratios(failed, summarise(outcomes()))

    assert found["output_tokens_per_s"] is None
    assert found["ttft_s"]["p50"] is None


def test_a_comparison_is_a_table_or_an_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = written(tmp_path / "before.jsonl", outcomes())
    after = written(tmp_path / "after.jsonl", outcomes(scale=0.5))

    assert show_comparison(before, after, as_json=False) == 0
    table = capsys.readouterr().out
    assert show_comparison(before, after, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)

    (row,) = [line for line in table.splitlines() if "first token, p50" in line]
    assert [cell.strip() for cell in row.strip("│").split("│")][1:] == ["0.1", "0.05", "0.50"]
    assert told["before"]["requests"] == told["after"]["requests"] == 40
    assert told["ratios"]["ttft_s"]["p99"] == 0.5


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_results_are_drawn_by_their_files_ending(tmp_path: Path, ending: str) -> None:
    files = [
        written(tmp_path / f"{name}.jsonl", outcomes(scale))
        for name, scale in (("a", 1), ("b", 50))
    ]
    picture = tmp_path / f"both.{ending}"

    assert draw_files(files, picture) == 0

    drawn = picture.read_bytes()
    if ending == "png":
        assert drawn.startswith(b"\x89PNG\r\n\x1a\n")
    else:
        assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    assert len(drawn) > 5_000


def test_a_run_in_which_all_failed_is_still_drawn(tmp_path: Path) -> None:
    failed = outcomes(error="HTTP 503", count=2)
    for outcome in failed:
        outcome.events.clear()

    assert draw_files([written(tmp_path / "a", failed)], tmp_path / "a.svg") == 0


def test_a_picture_that_cannot_be_is_told_before_a_long_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, nowhere = Job(requests=1), "http://127.0.0.1:1"
    with pytest.raises(Mistake, match=r"ends in \.png or \.svg"):
        measure(nowhere, attrs.evolve(job, plot=tmp_path / "a.pdf"))
    with pytest.raises(Mistake, match="there is no folder"):
        measure(nowhere, attrs.evolve(job, plot=tmp_path / "absent" / "a.png"))
    with pytest.raises(FileNotFoundError):
        measure(nowhere, attrs.evolve(job, out=tmp_path / "absent" / "a"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Mistake, match=r"pip install 'plancha\[plot\]'"):
        measure(nowhere, attrs.evolve(job, plot=tmp_path / "a.png"))
