"""The task that answers gateways' questions from what the worker knows."""

from collections.abc import Awaitable, Callable, Mapping
from typing import cast

import structlog
from anyio import create_task_group
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.messages import Answer, Ask, Downstream, WorkerTopic

log = structlog.get_logger()

Answerer = Callable[[Ask], Awaitable[Answer]]
"""Answers what is asked about one topic, under the question's number."""


async def answering(
    asks: MemoryObjectReceiveStream[Ask],
    downstream: MemoryObjectSendStream[Downstream],
    answerers: Mapping[WorkerTopic, Answerer],
) -> None:
    """Task: a question that takes long holds up no other, and one that fails has no answer."""

    async def answer(ask: Ask) -> None:
        found = Answer(ask.number)
        try:
            answerer = answerers.get(cast(WorkerTopic, ask.topic))
            if answerer is not None:
                found = await answerer(ask)
        except Exception:
            log.exception("answer_failed", topic=ask.topic)
        await downstream.send(found)

    async with create_task_group() as tasks:
        async for ask in asks:
            tasks.start_soon(answer, ask)
