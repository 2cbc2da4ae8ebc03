from pathlib import Path

import pytest

from plancha_app.bench.job import Job
from plancha_app.bench.workload import WORDS, WorkloadError, workload


def test_lengths_are_taken_in_turn() -> None:
    asks = workload(Job(requests=5, prompt_tokens="3,4", output_tokens="16,32,64"))

    assert [ask.prompt_tokens for ask in asks] == [3, 4, 3, 4, 3]
    assert [ask.output_tokens for ask in asks] == [16, 32, 64, 16, 32]
    assert [len(ask.prompt) for ask in asks] == [3, 4, 3, 4, 3]
    assert [ask.due_s for ask in asks] == [None] * 5


def test_the_same_job_is_the_same_load_and_another_seed_is_not() -> None:
    assert workload(Job(rate=2.0)) == workload(Job(rate=2.0))
    assert workload(Job(seed=1)) != workload(Job(seed=2))


def test_no_two_prompts_begin_alike() -> None:
    asks = workload(Job(requests=100, prompt_tokens="128"))

    assert len({ask.prompt[:4] for ask in asks}) == 100


def test_text_prompts_are_so_many_common_words() -> None:
    (ask,) = workload(Job(requests=1, prompt_tokens="7", text=True))

    assert isinstance(ask.prompt, str)
    assert len(ask.prompt.split(" ")) == 7
    assert set(ask.prompt.split(" ")) <= set(WORDS)


def test_an_open_loops_arrivals_are_poisson_at_its_rate() -> None:
    dues = [ask.due_s or 0.0 for ask in workload(Job(requests=4000, rate=20.0, prompt_tokens="1"))]
    gaps = [later - earlier for earlier, later in zip([0.0, *dues], dues, strict=False)]

    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert min(gaps) > 0
    assert mean == pytest.approx(1 / 20, rel=0.1)
    assert spread == pytest.approx(mean, rel=0.1)  # exponential: as wide as long


def test_an_azure_trace_is_played_from_its_first_request(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.5000000,4808,10\n"
        "2023-11-16 18:17:04.0000000,110,9000\n"
        "2023-11-16 18:17:05.5000001,7,0\n"
    )

    asks = workload(Job(trace=trace, speed=2.0, longest=4096))

    assert [ask.due_s for ask in asks] == pytest.approx([0.0, 0.25, 1.0])
    assert [ask.prompt_tokens for ask in asks] == [4096, 110, 7]
    assert [ask.output_tokens for ask in asks] == [10, 4096, 1]


def test_a_mooncake_trace_is_in_milliseconds(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        '{"timestamp": 1000, "input_length": 6, "output_length": 5, "hash_ids": [0]}\n'
        '{"timestamp": 4000, "input_length": 7, "output_length": 4, "hash_ids": [0]}\n'
    )

    asks = workload(Job(trace=trace, requests=2))

    assert [(ask.due_s, ask.prompt_tokens, ask.output_tokens) for ask in asks] == [
        (0.0, 6, 5),
        (3.0, 7, 4),
    ]


@pytest.mark.parametrize("lengths", ["", "0", "-1", "a", "16,,32", "1.5"])
def test_lengths_that_make_no_sense_are_told_with_their_option(lengths: str) -> None:
    with pytest.raises(WorkloadError, match="--output-tokens"):
        workload(Job(output_tokens=lengths))


def test_what_is_no_trace_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    (tmp_path / "odd.jsonl").write_text("nothing\n")
    (tmp_path / "empty.jsonl").write_text("")

    for name in ("odd.csv", "odd.jsonl", "empty.jsonl", "absent.csv"):
        with pytest.raises(WorkloadError, match=name):
            workload(Job(trace=tmp_path / name))


def test_a_rate_and_a_trace_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="one of them"):
        workload(Job(rate=1.0, trace=tmp_path / "trace.csv"))
