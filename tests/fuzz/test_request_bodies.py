"""Bodies of any JSON, and of bytes that are nearly JSON: an ask, or a refusal that says why."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plancha.failure import RequestFailed
from plancha_transports.asks import (
    GENERATE_FIELDS,
    Ask,
    chat_ask,
    chat_fields,
    completion_ask,
    completion_fields,
    generate_ask,
)
from plancha_transports.failures import error_object
from plancha_transports.json_object import parse_object
from plancha_transports.options import HttpOptions

pytestmark = pytest.mark.fuzz
LONG = settings.get_current_profile_name() == "fuzz"
OPTIONS = HttpOptions()
DOORS: list[Callable[[Any], Ask]] = [
    lambda body: generate_ask(body, None),
    lambda body: completion_ask(body, None, OPTIONS),
    lambda body: chat_ask(body, None, OPTIONS),
]
MOST_MESSAGE_CHARACTERS = 400

quick = settings(
    max_examples=800 if LONG else 150,
    derandomize=not LONG,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

tables = (GENERATE_FIELDS, completion_fields(OPTIONS.max_n), chat_fields(OPTIONS.max_n))
names = sorted({name for table in tables for name in (*table.checks, *table.defaults_only)})
inner_names = ["role", "content", "name", "type", "text", "include_usage", "json_schema", "schema"]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["text", "user", "json_object", "json_schema", "none", "auto", "x" * 5000])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(inner_names) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
bodies = st.dictionaries(st.sampled_from(names) | st.text(max_size=12), values, max_size=5)
GOOD: dict[str, Any] = {"prompt": "Hi?", "messages": [{"role": "user", "content": "Hi?"}]}


def assert_asked_or_refused(door: Callable[[Any], Ask], raw: bytes) -> None:
    try:
        ask = door(parse_object(raw))
    except RequestFailed as refused:
        failure = refused.failure
        assert failure.kind == "invalid"
        assert len(failure.message) < MOST_MESSAGE_CHARACTERS, failure.message
        assert failure.param is None or len(failure.param) < 200
        orjson.dumps(error_object(failure))
    else:
        assert isinstance(ask, Ask)


@pytest.mark.parametrize("door", DOORS, ids=["generate", "completions", "chat"])
@quick
@given(body=bodies, needed=st.sampled_from([(), ("prompt",), ("messages",)]))
def test_any_body_is_an_ask_or_a_refusal(door: Any, body: Any, needed: Any) -> None:
    assert_asked_or_refused(door, orjson.dumps({name: GOOD[name] for name in needed} | body))


@quick
@given(body=bodies, data=st.data())
def test_bytes_that_are_nearly_json_are_refused(body: Any, data: st.DataObject) -> None:
    raw = bytearray(orjson.dumps(GOOD | body))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        noise = st.binary(max_size=4) | st.sampled_from(
            [b"\\ud800", b"\\", b'"', b"]", b"{", b"\0"]
        )
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(noise)
        raw = raw or bytearray(b"{")
    for door in DOORS:
        assert_asked_or_refused(door, bytes(raw))
