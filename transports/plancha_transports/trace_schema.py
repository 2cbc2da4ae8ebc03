"""What `/v1/requests/{id}/trace` answers, in words and as a schema."""

from collections.abc import Mapping

from plancha.messages import FinishReason
from plancha.traces.traces import MOST_SEQUENCES
from plancha_transports.fields import Schema
from plancha_transports.schema_parts import (
    BOOLEAN,
    COUNT,
    NAME_OR_NULL,
    NUMBER,
    STRING,
    list_of,
    object_of,
    one_of,
    without,
)

ABOUT_TRACES = f"""\
Times are seconds since the request was accepted. A reason holds until the next entry: `budget` (the
step's tokens or time are used up by prompts before it), `blocks` (KV blocks are short), `watermark`
(the last ones are kept for those who run), `slots` (the batch is full), `tenant_limit` (your tenant
runs as many as it may), `share` (another tenant's turn), `tier` (a better one goes first), `order`
(others stand before it), `next` (it is the next), `sibling` (its prompt's first output is to be
computed first), `paused` (its reader lags), `engine` (a step failed). `steps` counts in how many
the planner looked at it and passed it over. What tells of other tenants is for operators alone. Of
a request's `sequence_count` sequences the first {MOST_SEQUENCES} are told.
"""

_SPAN: Mapping[str, Schema] = {"from_s": NUMBER, "to_s": NUMBER, "steps": COUNT}


def _happened(event: str, **properties: Schema) -> Schema:
    return object_of(event={"const": event}, at_s=NUMBER, **properties)


TRACED = {
    "oneOf": [
        _happened("accepted"),
        without(
            object_of(
                event={"const": "waiting"},
                reason=STRING,
                **_SPAN,
                needs_blocks=COUNT,
                available_blocks=COUNT,
                overtaken=COUNT,
            ),
            *("needs_blocks", "available_blocks", "overtaken"),
        ),
        _happened("joined", cached_tokens=COUNT),
        _happened("first_token"),
        _happened("preempted", reason=STRING, kept=BOOLEAN),
        _happened("evicted", kept=BOOLEAN),
        _happened("resumed", computed_tokens=COUNT),
        object_of(event={"const": "omitted"}, entries=COUNT, **_SPAN),
        without(_happened("ended", outcome=one_of(FinishReason), code=NAME_OR_NULL), "code"),
    ]
}
TRACE = without(
    object_of(
        id=STRING,
        object={"const": "request.trace"},
        tenant=STRING,
        tier={"type": "integer"},
        age_s=NUMBER,
        sequence_count=COUNT,
        sequences=list_of(
            without(
                object_of(
                    prompt=COUNT,
                    choice=COUNT,
                    state={"enum": ["waiting", "running", "ended"]},
                    reason=STRING,
                    position={"type": "integer", "minimum": 1},
                    position_of_all={"type": "integer", "minimum": 1},
                    prompt_tokens=COUNT,
                    computed_tokens=COUNT,
                    output_tokens=COUNT,
                    history=list_of(TRACED),
                ),
                *("reason", "position", "position_of_all", "computed_tokens"),
            )
        ),
    ),
    *("tenant", "tier"),
)
