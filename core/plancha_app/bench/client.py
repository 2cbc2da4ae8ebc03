"""One streamed request and what it cost, by the clock of this process."""

import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import aiohttp
import attrs
import orjson

from plancha_app.bench.job import Job
from plancha_app.bench.workload import Ask
from plancha_app.remote.event_stream import EventStream


@attrs.define(kw_only=True, eq=False)
class Outcome:
    """A request from the outside. Times are seconds; `sent_s` counts from the start of the run."""

    ask: Ask
    sent_s: float
    ended_s: float = 0.0
    error: str | None = None  # None: the answer came to its end
    prompt_tokens: int = 0
    output_tokens: int = 0
    events: list[float] = attrs.field(factory=list)  # when each arrived, since the start
    finish_reason: str | None = None

    @property
    def ttft_s(self) -> float | None:
        """From sending to the first token; None if none came."""
        return self.events[0] - self.sent_s if self.events else None

    @property
    def latency_s(self) -> float:
        """From sending to the end."""
        return self.ended_s - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        """Between one event and the next, which is between tokens where each has its own event."""
        return [later - earlier for earlier, later in pairwise(self.events)]


async def ask(
    session: aiohttp.ClientSession, api: str, model: str, asked: Ask, job: Job, began: float
) -> Outcome:
    """Send one request and read its stream to the end. Failures are part of the outcome.

    `api` is what /completions comes after, such as http://127.0.0.1:8000/v1.
    """
    outcome = Outcome(ask=asked, sent_s=time.perf_counter() - began)
    try:
        async with session.post(f"{api}/completions", data=_body(asked, model, job)) as response:
            if response.status != 200:
                outcome.error = f"HTTP {response.status}"
            else:
                await _read(response, outcome, began)
    except TimeoutError:
        outcome.error = "timeout"
    except aiohttp.ClientError as error:
        outcome.error = type(error).__name__
    except (KeyError, TypeError, ValueError):
        outcome.error = "not an OpenAI stream"
    outcome.ended_s = time.perf_counter() - began
    return outcome


def _body(asked: Ask, model: str, job: Job) -> bytes:
    fields: dict[str, Any] = {
        "model": model,
        "prompt": asked.prompt,
        "max_tokens": asked.output_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if job.ignore_eos:
        fields["ignore_eos"] = True
    return orjson.dumps(fields)


async def _read(response: aiohttp.ClientResponse, outcome: Outcome, began: float) -> None:
    outcome.error = "cut off"
    async for data in _events(response):
        if data == b"[DONE]":
            outcome.error = None
            break
        event = orjson.loads(data)
        if not isinstance(event, dict):
            raise TypeError
        if "error" in event:
            outcome.error = "error event"
            break
        for choice in event.get("choices", ()):
            if choice.get("finish_reason") is None or choice.get("text"):
                outcome.events.append(time.perf_counter() - began)
            outcome.finish_reason = choice.get("finish_reason") or outcome.finish_reason
        usage = event.get("usage")
        if usage:
            outcome.prompt_tokens = usage["prompt_tokens"]
            outcome.output_tokens = usage["completion_tokens"]
    if not outcome.output_tokens:  # a server that tells no usage
        outcome.prompt_tokens = outcome.ask.prompt_tokens
        outcome.output_tokens = len(outcome.events)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The data of each server-sent event."""
    stream = EventStream()
    async for chunk in response.content.iter_any():
        for event in stream.feed(chunk):
            yield event.data
    for event in stream.end():
        yield event.data
