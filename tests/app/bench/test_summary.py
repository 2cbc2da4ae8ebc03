import pytest

from plancha_app.bench.client import Outcome
from plancha_app.bench.result_file import row
from plancha_app.bench.summary import spread, summarise
from plancha_app.bench.workload import Ask


def outcome(number: int, sent_s: float, *events: float, error: str | None = None) -> Outcome:
    return Outcome(
        ask=Ask(number, None, 10, len(events), ()),
        sent_s=sent_s,
        ended_s=events[-1] if events else sent_s,
        error=error,
        prompt_tokens=10,
        output_tokens=len(events),
        events=list(events),
        finish_reason="length",
    )


def test_percentiles_lie_on_the_line_between_neighbours() -> None:
    # With 11 evenly spaced values, percentile p lies exactly at p / 10.
    found = spread([float(value) for value in (7, 2, 9, 0, 4, 10, 1, 8, 3, 6, 5)])

    assert found == {"mean": 5.0, "p50": 5.0, "p90": 9.0, "p99": 9.9}


def test_one_value_is_every_percentile_and_none_is_none() -> None:
    assert spread([0.25]) == {"mean": 0.25, "p50": 0.25, "p90": 0.25, "p99": 0.25}
    assert spread([]) == {"mean": None, "p50": None, "p90": None, "p99": None}


def test_a_run_is_summed_up_from_its_first_request_to_its_last_token() -> None:
    found = summarise(
        [
            outcome(0, 1.0, 1.5, 2.0, 3.0),  # first token after 0.5, gaps 0.5 and 1.0
            outcome(1, 2.0, 2.25, 5.0),  # after 0.25, gap 2.75
        ]
    )

    assert found["duration_s"] == 4.0
    assert (found["prompt_tokens"], found["output_tokens"]) == (20, 5)
    assert found["output_tokens_per_s"] == 1.25
    assert found["ttft_s"]["mean"] == 0.375
    assert found["inter_token_s"]["p50"] == 1.0
    assert found["latency_s"]["mean"] == 2.5
    assert (found["failed"], found["errors"]) == (0, {})


def test_failed_requests_count_as_errors_and_for_nothing_else() -> None:
    found = summarise(
        [
            outcome(0, 0.0, 1.0, 2.0),
            outcome(1, 0.0, 1.0, error="cut off"),
            outcome(2, 0.0, error="HTTP 429"),
            outcome(3, 0.0, error="HTTP 429"),
        ]
    )

    assert (found["requests"], found["failed"], found["output_tokens"]) == (4, 3, 2)
    assert found["errors"] == {"cut off": 1, "HTTP 429": 2}
    assert found["latency_s"]["p99"] == 2.0


def test_a_run_in_which_nothing_succeeded_still_has_a_summary() -> None:
    found = summarise([outcome(0, 0.0, error="HTTP 503")])

    assert (found["failed"], found["output_tokens_per_s"]) == (1, 0.0)


def test_a_requests_line_has_its_own_figures() -> None:
    found = row(outcome(3, 1.0, 1.5, 2.0))

    assert (found["number"], found["error"], found["output_tokens"]) == (3, None, 2)
    assert found["ttft_s"] == pytest.approx(0.5)
    assert found["latency_s"] == pytest.approx(1.0)
    assert found["inter_token_s"]["p50"] == pytest.approx(0.5)
