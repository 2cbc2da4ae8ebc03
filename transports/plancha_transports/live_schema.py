"""The schema of what `/v1/live` answers."""

from plancha_transports.fields import Schema
from plancha_transports.schema_parts import COUNT, NUMBER, STRING, list_of, object_of, without

SHARE = {"type": "number", "minimum": 0, "maximum": 1}
SECONDS = {"type": "number", "minimum": 0}
QUANTILES = object_of(
    count=COUNT,
    p50_s={"type": ["number", "null"]},
    p99_s={"type": ["number", "null"]},
)
ENDED = object_of(stop=COUNT, length=COUNT, cancelled=COUNT, error=COUNT)

_KV = without(
    object_of(
        block_size=COUNT,
        total_blocks=COUNT,
        used_share=SHARE,
        used_blocks=COUNT,
        cached_blocks=COUNT,
        free_blocks=COUNT,
        waste=SHARE,
        host_blocks=COUNT,
        host_free_blocks=COUNT,
        map_stride={"type": "integer", "minimum": 1},
        map=list_of(COUNT),
    ),
    *("used_blocks", "cached_blocks", "free_blocks", "waste", "host_blocks", "host_free_blocks"),
)
_SEQUENCE = object_of(
    id=STRING,
    tenant=STRING,
    state={"enum": ["prefill", "decode"]},
    prompt_tokens=COUNT,
    computed_tokens=COUNT,
    known_tokens=COUNT,
    limit_tokens=COUNT,
    blocks=COUNT,
    preemptions=COUNT,
    age_s=SECONDS,
)
_TENANT = object_of(
    name=STRING,
    tier=COUNT,
    running=COUNT,
    waiting=COUNT,
    paused=COUNT,
    longest_wait_s=SECONDS,
    preemptions=COUNT,
    blocks=COUNT,
    shared_blocks=COUNT,
    prompt_tokens=COUNT,
    generated_tokens=COUNT,
    first_token=QUANTILES,
    inter_token=QUANTILES,
)
_COUNTERS = without(
    object_of(
        steps=COUNT,
        generated_tokens=COUNT,
        prompt_tokens=COUNT,
        cached_prompt_tokens=COUNT,
        ended=ENDED,
        rejected=COUNT,
        preemptions=object_of(swapped=COUNT, recompute=COUNT),
    ),
    *("steps", "cached_prompt_tokens", "rejected", "preemptions"),
)

LIVE: Schema = object_of(
    object={"const": "live"},
    scope={"enum": ["all", "tenant"]},
    at_s=NUMBER,
    kv=_KV,
    batch=object_of(
        slots=COUNT,
        used_share=SHARE,
        running=COUNT,
        sequences={**list_of(_SEQUENCE), "maxItems": 256},
    ),
    tenants=list_of(_TENANT),
    counters=_COUNTERS,
    recent=object_of(window_s=NUMBER, first_token=QUANTILES, inter_token=QUANTILES),
)
"""What only operators are told is not required."""
