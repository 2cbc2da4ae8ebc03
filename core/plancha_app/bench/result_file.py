"""A run's requests in a file, one JSON object a line, to be read again."""

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import orjson

from plancha_app.bench.client import Outcome
from plancha_app.bench.summary import spread, summarise
from plancha_app.bench.workload import Ask
from plancha_app.complaints import Mistake


def row(outcome: Outcome) -> dict[str, Any]:
    """One request. `events_s` are when each token came, since the request was sent."""
    return {
        "number": outcome.ask.number,
        "error": outcome.error,
        "sent_s": round(outcome.sent_s, 5),
        "prompt_tokens": outcome.prompt_tokens,
        "output_tokens": outcome.output_tokens,
        "wanted_tokens": outcome.ask.output_tokens,
        "finish_reason": outcome.finish_reason,
        "ttft_s": None if outcome.ttft_s is None else round(outcome.ttft_s, 5),
        "latency_s": round(outcome.latency_s, 5),
        "inter_token_s": spread(outcome.gaps_s),
        "events_s": [round(at_s - outcome.sent_s, 5) for at_s in outcome.events],
    }


def write(file: IO[bytes], outcomes: Sequence[Outcome]) -> None:
    """A line each."""
    for outcome in outcomes:
        file.write(orjson.dumps(row(outcome), option=orjson.OPT_APPEND_NEWLINE))


def read_outcomes(path: Path) -> list[Outcome]:
    """What `write` wrote. Raises `Mistake`, and `OSError` when it cannot be read."""
    objects = _objects(path)
    if len(objects) == 1 and "events_s" not in objects[0] and "requests" in objects[0]:
        raise Mistake(
            f"{path} holds a summary alone; `plancha bench --out FILE` writes each request"
        )
    try:
        return [_outcome(found) for found in objects]
    except (KeyError, TypeError, ValueError):
        raise _not_a_result(path) from None


def read_summary(path: Path) -> dict[str, Any]:
    """Of either: each request, or the summary that `--json` prints. Raises as `read_outcomes`."""
    objects = _objects(path)
    if len(objects) == 1 and "output_tokens_per_s" in objects[0]:
        return objects[0]
    return summarise(read_outcomes(path))


def _objects(path: Path) -> list[dict[str, Any]]:
    try:
        found = [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    except orjson.JSONDecodeError:
        found = []
    if not found or not all(isinstance(each, dict) for each in found):
        raise _not_a_result(path)
    return found


def _outcome(found: dict[str, Any]) -> Outcome:
    sent_s = float(found["sent_s"])
    prompt_tokens = int(found["prompt_tokens"])
    return Outcome(
        ask=Ask(int(found["number"]), None, prompt_tokens, int(found["wanted_tokens"]), ""),
        sent_s=sent_s,
        ended_s=sent_s + float(found["latency_s"]),
        error=found["error"],
        prompt_tokens=prompt_tokens,
        output_tokens=int(found["output_tokens"]),
        events=[sent_s + float(at_s) for at_s in found["events_s"]],
        finish_reason=found["finish_reason"],
    )


def _not_a_result(path: Path) -> Mistake:
    return Mistake(
        f"{path} is no result: neither what `plancha bench --out` writes nor --json prints"
    )
