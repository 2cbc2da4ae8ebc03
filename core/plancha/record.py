"""What a gateway remembers of a request: its state, its usage and nothing of its content."""

from typing import Literal

import attrs

State = Literal["queued", "generating", "done"]
Outcome = Literal["completed", "cancelled", "failed", "stalled"]


@attrs.define(eq=False, kw_only=True)
class Record:
    """One request. Counts are exact for finished streams and current for running ones."""

    id: str
    label: str | None  # the client's own id, echoed and never used as a key
    tenant: str
    model: str
    created: int  # wall clock, Unix seconds
    input_tokens: int
    cached_tokens: int = 0  # of the input tokens, found in the prefix cache
    output_tokens: int = 0
    state: State = "queued"
    outcome: Outcome | None = None
    finished: int | None = None  # wall clock, Unix seconds; None: it has not
