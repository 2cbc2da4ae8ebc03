"""What a worker promises to write down of every accepted request, and who writes it down."""

from collections.abc import Sequence
from typing import Protocol

import attrs

from plancha.record import Outcome, Record


@attrs.frozen(kw_only=True)
class Opened:
    """A request was accepted. Keyed by (`request`, `attempt`).

    `attempt` counts from 0 what was started for one request; only the last one is ever billed.
    """

    request: str
    attempt: int = 0
    label: str | None  # the client's own id
    tenant: str
    model: str
    opened_s: float  # wall clock, Unix seconds


@attrs.frozen(kw_only=True)
class Counts:
    """Tokens really computed for a request so far: what it costs if nothing more comes.

    `input_tokens` were prefilled, replays after a preemption excluded, and `cached_tokens` of them
    were found in the prefix cache; `output_tokens` were sampled and kept.
    """

    request: str
    attempt: int = 0
    input_tokens: int
    cached_tokens: int
    output_tokens: int


@attrs.frozen(kw_only=True)
class Closed:
    """A request has ended; `counts` are final. `superseded`: another attempt goes on, bill that."""

    counts: Counts
    outcome: Outcome
    closed_s: float  # wall clock, Unix seconds
    superseded: bool = False


class LedgerError(Exception):
    """The ledger cannot write, or not read, now; the message says why. What was asked may come
    again.
    """


class LedgerLost(LedgerError):
    """Another writer has taken this one's place: nothing may be written by this one any more."""


class Ledger(Protocol):
    """Usage records that outlive the process. Every method may be called while another runs."""

    async def write(
        self, opened: Sequence[Opened], counts: Sequence[Counts], closed: Sequence[Closed]
    ) -> None:
        """One transaction, durable on return. Idempotent: what is already there stays as it is.

        A request may be opened and closed in one call. Raises `LedgerError`: nothing, or all, was
        written; the same may be given again. Raises `LedgerLost` when it never can be.
        """
        ...

    async def find(self, request: str) -> Record | None:
        """What is written of a request's latest attempt; None: nothing. Raises `LedgerError`."""
        ...

    async def close(self) -> None:
        """Give up the writer's lock. What `write` was given is durable already."""
        ...
