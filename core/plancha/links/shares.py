"""Several gateways on one worker: whose a stream is, and each one's share of a frame."""

from collections import defaultdict
from typing import TypeVar

import attrs
import numpy as np

from plancha.messages import Bill, Finished, Frame, Int64s, Joined, PromptLogprobs, Settled

NUMBER_BITS = 40
"""Of a stream's number: a gateway can number 10^12 streams, a worker 8 million connections."""

OfStream = TypeVar("OfStream", Finished, Joined, PromptLogprobs)


def first_stream(connection: int) -> int:
    """Where the numbers of that connection's streams begin."""
    return connection << NUMBER_BITS


def connection_of(stream: int) -> int:
    """Which connection numbered the stream."""
    return stream >> NUMBER_BITS


def shares(frame: Frame) -> dict[int, Frame]:
    """The frame's parts by connection, of those that have one; a few array operations for each."""
    owners = frame.streams >> NUMBER_BITS
    joined, finished = _by_owner(frame.joined), _by_owner(frame.finished)
    prompts = _by_owner(frame.prompt_logprobs)
    everyone = {*_values(owners), *joined, *finished, *prompts}
    if len(everyone) == 1:
        return {everyone.pop(): frame}
    parts: dict[int, Frame] = {}
    for owner in everyone:
        rows = owners == owner
        parts[owner] = attrs.evolve(
            frame,
            streams=frame.streams[rows],
            tokens=frame.tokens[rows],
            joined=tuple(joined[owner]),
            finished=tuple(finished[owner]),
            logprobs=None if frame.logprobs is None else frame.logprobs.rows(rows),
            prompt_logprobs=tuple(prompts[owner]),
        )
    return parts


def bills_by_connection(settled: Settled) -> dict[int, tuple[Bill, ...]]:
    """Whose requests they are: a request's streams all come by one connection."""
    owned: defaultdict[int, list[Bill]] = defaultdict(list)
    for bill in settled.bills:
        owned[connection_of(bill.streams[0])].append(bill)
    return {owner: tuple(bills) for owner, bills in owned.items()}


def _values(owners: Int64s) -> list[int]:
    """Each once; the usual case, one owner, without sorting."""
    if owners.size and (owners == owners[0]).all():
        return [int(owners[0])]
    return [int(owner) for owner in np.unique(owners)]


def _by_owner(items: tuple[OfStream, ...]) -> defaultdict[int, list[OfStream]]:
    owned: defaultdict[int, list[OfStream]] = defaultdict(list)
    for item in items:
        owned[connection_of(item.stream)].append(item)
    return owned
