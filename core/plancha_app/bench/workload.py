"""The requests of a job: what each asks, and when it is due."""

import csv
from collections.abc import Iterator
from datetime import datetime
from itertools import accumulate, cycle, islice
from pathlib import Path
from random import Random

import attrs
import orjson

from plancha_app.bench.job import Job
from plancha_app.complaints import Mistake

WORDS = (
    "the of and to in is that for it was on are as with they at be this have from or one had by "
    "word but not what all were we when your can said there use an each which she do how their if "
    "will up other about out many then them these so some her would make like him into time has "
    "look two more write go see number no way could people my than first water been call who oil "
    "its now find long down day did get come made may part"
).split()
"""Common words: after a space, one token each in the usual vocabularies."""

FIRST_ID, LAST_ID = 300, 4_000
"""Plain-text ids in the usual vocabularies: past special tokens and bytes, before the small end."""


class WorkloadError(Mistake):
    """A job that makes no sense; the message says what would."""


@attrs.frozen
class Ask:
    """One request. `due_s` after the start; None: as soon as another has ended."""

    number: int
    due_s: float | None
    prompt_tokens: int
    output_tokens: int
    prompt: str | tuple[int, ...]


def workload(job: Job) -> tuple[Ask, ...]:
    """Every request of the job, the same for the same job. Raises `WorkloadError`."""
    if job.rate is not None and job.trace is not None:
        raise WorkloadError("--rate and --trace both say when requests arrive; give one of them")
    random = Random(job.seed)
    shapes = _trace(job) if job.trace is not None else _shapes(job, random)
    asks = tuple(
        Ask(number, due_s, prompt, output, _prompt(prompt, job.text, random))
        for number, (due_s, prompt, output) in enumerate(islice(shapes, job.requests))
    )
    if not asks:
        raise WorkloadError(f"{job.trace} holds no requests")
    return asks


Shape = tuple[float | None, int, int]


def _shapes(job: Job, random: Random) -> Iterator[Shape]:
    prompts = cycle(_lengths("--prompt-tokens", job.prompt_tokens))
    outputs = cycle(_lengths("--output-tokens", job.output_tokens))
    rate = job.rate
    if rate is None:
        return ((None, next(prompts), next(outputs)) for _ in range(job.requests))
    arrivals = accumulate(random.expovariate(rate) for _ in range(job.requests))
    return ((due_s, next(prompts), next(outputs)) for due_s in arrivals)


def _lengths(option: str, listed: str) -> tuple[int, ...]:
    try:
        lengths = tuple(int(part) for part in listed.split(","))
    except ValueError:
        lengths = ()
    if not lengths or min(lengths) < 1:
        raise WorkloadError(f'{option} is "{listed}"; it must be lengths such as 128 or 16,32,64')
    return lengths


def _trace(job: Job) -> Iterator[Shape]:
    path = job.trace
    assert path is not None
    try:
        rows = list(
            islice(_azure(path) if path.suffix == ".csv" else _mooncake(path), job.requests)
        )
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise WorkloadError(f"{path} is no trace that is known here: {error!r}") from None
    began = rows[0][0] if rows else 0.0
    for at_s, prompt, output in rows:
        shape = min(max(prompt, 1), job.longest), min(max(output, 1), job.longest)
        yield (at_s - began) / job.speed, *shape


def _azure(path: Path) -> Iterator[tuple[float, int, int]]:
    """Columns of the Azure LLM inference traces (2023): seven digits of a second's fraction."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            at = datetime.fromisoformat(row["TIMESTAMP"][:26])
            yield at.timestamp(), int(row["ContextTokens"]), int(row["GeneratedTokens"])


def _mooncake(path: Path) -> Iterator[tuple[float, int, int]]:
    """Lines of the Mooncake traces (2024)."""
    with path.open("rb") as file:
        for line in file:
            row = orjson.loads(line)
            yield row["timestamp"] / 1000, row["input_length"], row["output_length"]


def _prompt(tokens: int, text: bool, random: Random) -> str | tuple[int, ...]:
    if text:
        return " ".join(random.choices(WORDS, k=tokens))
    return tuple(random.choices(range(FIRST_ID, LAST_ID), k=tokens))
