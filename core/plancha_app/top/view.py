"""What `GET /v1/live` tells, as far as it is shown; what only operators are told may be missing."""

import attrs
import cattrs
import orjson

from plancha_app.complaints import printable
from plancha_app.remote.server_error import ServerError
from plancha_app.remote.session import Remote


@attrs.frozen
class Quantiles:
    """Of the last half minute, in seconds; None where there were none."""

    count: int = 0
    p50_s: float | None = None
    p99_s: float | None = None


@attrs.frozen(kw_only=True)
class Kv:
    """The pool. `map` is a code and how often in a row, over and over; see `block_map`."""

    block_size: int
    total_blocks: int
    used_share: float
    map: list[int]
    map_stride: int = 1
    used_blocks: int | None = None
    cached_blocks: int | None = None
    free_blocks: int | None = None
    waste: float | None = None
    host_blocks: int = 0
    host_free_blocks: int = 0


@attrs.frozen(kw_only=True)
class Row:
    """One sequence of the batch. Tokens count its prompt too."""

    id: str
    tenant: str
    state: str  # "prefill" or "decode"
    prompt_tokens: int
    computed_tokens: int
    known_tokens: int
    limit_tokens: int
    blocks: int
    preemptions: int
    age_s: float


@attrs.frozen(kw_only=True)
class Batch:
    """Its oldest sequences, and how many there are."""

    slots: int
    used_share: float
    running: int
    sequences: list[Row]


@attrs.frozen(kw_only=True)
class TenantRow:
    """One tenant."""

    name: str
    tier: int
    running: int
    waiting: int
    paused: int
    longest_wait_s: float
    blocks: int
    shared_blocks: int
    generated_tokens: int
    first_token: Quantiles
    inter_token: Quantiles


@attrs.frozen(kw_only=True)
class Counters:
    """Since the server's start."""

    generated_tokens: int
    prompt_tokens: int
    ended: dict[str, int]
    cached_prompt_tokens: int | None = None
    rejected: int | None = None
    preemptions: dict[str, int] | None = None


@attrs.frozen
class Recent:
    """Of everybody whom the viewer may see."""

    first_token: Quantiles
    inter_token: Quantiles


@attrs.frozen(kw_only=True)
class View:
    """One look at a server, `at_s` after its start."""

    scope: str  # "all", or "tenant": one of them sees its own
    at_s: float
    kv: Kv
    batch: Batch
    tenants: list[TenantRow]
    counters: Counters
    recent: Recent


MOST = 1_000_000
"""Slots, and cells of the map: a server that tells of more fills no memory here."""


def _count(found: object, _: type) -> int:
    if not isinstance(found, int) or found < 0:
        raise ValueError("no count")
    return found


_CONVERTER = cattrs.Converter()
_CONVERTER.register_structure_hook(int, _count)
_CONVERTER.register_structure_hook(str, lambda found, _: printable(str(found)))


def understand(body: bytes, root: str) -> View:
    """Raises `ServerError` when it is not what is expected of a Plancha server."""
    try:
        view = _CONVERTER.structure(orjson.loads(body), View)
        if max(view.batch.slots, sum(view.kv.map[1::2])) > MOST:
            raise ValueError("too much to draw")
        return view
    except Exception as error:  # cattrs gathers whatever its parts raise
        raise ServerError(
            f"{root} does not tell what `top` shows; is it a Plancha server, of this version?"
        ) from error


async def look(remote: Remote) -> bytes:
    """What the server tells now. Raises `ServerError`."""
    return await remote.look(f"{remote.address.api}/live")
