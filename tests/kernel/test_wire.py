"""Messages as bytes: whatever is encoded comes back, and whatever else comes is refused."""

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from plancha.failure import Failure
from plancha.links.handshake import KINDS, Hello, Welcome
from plancha.links.wire import HEADER, MAX_MESSAGE, Wire, WireError, sizes
from plancha.messages import (
    Answer,
    Ask,
    Cancel,
    Controls,
    Finished,
    Frame,
    InferenceRequest,
    Joined,
    Load,
    Logprobs,
    Pause,
    PromptLogprobs,
    Rejected,
    Reload,
    Resume,
    Submit,
    Truncate,
)
from plancha.record import Record
from plancha.sampling import Sampling
from plancha.tenant import Tenant

WIRE = Wire(*KINDS)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
counts = st.integers(0, 2**31)
numbers = st.integers(0, 2**63 - 1)
columns = st.integers(0, 5)


def ids(size: int, dtype: Any = np.int32) -> st.SearchStrategy[npt.NDArray[Any]]:
    return arrays(dtype, size)


def logprobs(rows: int) -> st.SearchStrategy[Logprobs]:
    return st.builds(
        Logprobs,
        ids(rows, np.float32),
        arrays(np.int32, (rows, 3)),
        arrays(np.float32, (rows, 3)),
    )


failures = st.builds(
    Failure,
    st.sampled_from(["invalid", "busy", "engine", "unavailable"]),
    texts,
    st.none() | texts,
    st.none() | texts,
    st.none() | counts,
)
controls = st.one_of(
    st.builds(Cancel, numbers),
    st.builds(Truncate, numbers, counts),
    st.builds(Pause, numbers),
    st.builds(Resume, numbers),
)
finished = st.builds(
    Finished,
    numbers,
    st.sampled_from(["stop", "length", "cancelled", "error"]),
    counts,
    counts,
    st.booleans(),
    st.none() | failures,
)
loads = st.builds(Load, counts, counts, counts, counts, counts, st.floats(0, 1, allow_nan=False))
samplings = st.builds(
    Sampling,
    temperature=st.floats(0, 2),
    top_k=st.integers(-1, 10_000),
    seed=st.none() | st.integers(-(2**63), 2**64 - 1),
    logit_bias=st.lists(st.tuples(counts, st.floats(-100, 100)), max_size=3).map(tuple),
    stop_token_ids=st.lists(counts, max_size=3).map(tuple),
    ignore_eos=st.booleans(),
)
tenants = st.builds(
    Tenant,
    weight=st.floats(0.001, 1000),
    tier=st.integers(0, 99),
    max_running=st.none() | counts,
    max_waiting=st.none() | counts,
    tokens_per_minute=st.none() | counts,
)
records = st.builds(
    Record,
    id=texts,
    label=st.none() | texts,
    tenant=texts,
    model=texts,
    created=counts,
    input_tokens=counts,
    cached_tokens=counts,
    output_tokens=counts,
    state=st.sampled_from(["queued", "generating", "done"]),
    outcome=st.none() | st.sampled_from(["completed", "cancelled", "failed"]),
)


@st.composite
def submits(draw: st.DrawFn) -> Submit:
    prompts = tuple(draw(st.lists(st.integers(1, 9).flatmap(ids), min_size=1, max_size=3)))
    n = draw(st.integers(1, 2))
    request = InferenceRequest(
        id=draw(texts),
        tenant=draw(texts),
        prompts=prompts,
        sampling=draw(samplings),
        max_tokens=draw(st.none() | counts),
        n=n,
        timeout_s=draw(st.none() | st.floats(0, 1e6)),
        grammar=draw(st.none() | texts),
        namespace=draw(st.binary(max_size=20)),
        public_tokens=draw(st.lists(counts, max_size=2).map(tuple)),
        logprobs=draw(st.none() | counts),
        prompt_logprobs=draw(st.booleans()),
        clamp=draw(st.booleans()),
        max_tokens_param=draw(texts),
    )
    return Submit(request, tuple(draw(numbers) for _ in range(n * len(prompts))))


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    rows = draw(columns)
    return Frame(
        draw(ids(rows, np.int64)),
        draw(ids(rows)),
        tuple(draw(st.lists(st.builds(Joined, numbers, counts), max_size=3))),
        tuple(draw(st.lists(finished, max_size=3))),
        draw(loads),
        draw(st.none() | logprobs(rows)),
        tuple(
            draw(
                st.lists(
                    st.builds(PromptLogprobs, numbers, counts, columns.flatmap(logprobs)),
                    max_size=2,
                )
            )
        ),
    )


messages = st.one_of(
    submits(),
    frames(),
    st.builds(Controls, st.lists(controls, max_size=4).map(tuple)),
    st.builds(Rejected, st.lists(numbers, min_size=1, max_size=3).map(tuple), failures),
    st.builds(
        Reload,
        tenants=st.dictionaries(texts, tenants, max_size=3),
        max_waiting=counts,
        queue_timeout_s=st.floats(0, 1e6),
        ttft_targets_s=st.dictionaries(st.integers(0, 99), st.floats(0, 1e6), max_size=3),
    ),
    st.builds(Ask, numbers, texts, texts, st.sampled_from(["record", "cancel", "usage", "trace"])),
    st.builds(Answer, numbers, st.none() | records),
    st.builds(Hello, texts),
    st.builds(Welcome, numbers, counts, texts),
)


def decode(data: bytes) -> Any:
    size, json_size = sizes(data[: HEADER.size])
    assert size == len(data) - HEADER.size
    return WIRE.decode(data[HEADER.size :], json_size)


def assert_same(one: Any, other: Any) -> None:
    """Equal all the way down, arrays with their dtype and shape, NaN to the bit."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
    elif attrs.has(type(one)):
        for field in attrs.fields(type(one)):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    else:
        assert one == other


@given(messages)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_every_message_comes_back_as_it_was(message: Any) -> None:
    assert_same(decode(WIRE.encode(message)), message)


@given(messages, st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_bytes_that_were_cut_or_changed_raise_one_error_or_are_a_message(
    message: Any, data: st.DataObject
) -> None:
    sent = bytearray(WIRE.encode(message))
    if data.draw(st.booleans(), label="cut"):
        del sent[data.draw(st.integers(HEADER.size, len(sent) - 1)) :]
        with pytest.raises(WireError):
            WIRE.decode(bytes(sent[HEADER.size :]), HEADER.unpack(sent[: HEADER.size])[1])
        return
    for _ in range(data.draw(st.integers(1, 4))):
        sent[data.draw(st.integers(HEADER.size, len(sent) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        changed = WIRE.decode(bytes(sent[HEADER.size :]), HEADER.unpack(sent[: HEADER.size])[1])
    except WireError:
        return
    assert isinstance(changed, KINDS)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_garbage_raises_one_error(payload: bytes, json_size: int) -> None:
    with pytest.raises(WireError):
        WIRE.decode(payload, json_size)


def test_a_message_over_the_limit_is_neither_read_nor_sent() -> None:
    with pytest.raises(WireError):
        sizes(HEADER.pack(MAX_MESSAGE + 1, 10))
    with pytest.raises(WireError):
        sizes(HEADER.pack(100, 10), 99)
    with pytest.raises(WireError):
        WIRE.encode(Hello("x" * MAX_MESSAGE))


def payload(body: Any, manifest: Any, arrays: bytes = b"") -> tuple[bytes, int]:
    json = orjson.dumps([body, manifest])
    json += b" " * (-len(json) % 8)
    return json + arrays, len(json)


FRAME = {
    "kind": "Frame",
    "streams": 0,
    "tokens": 1,
    "joined": [],
    "finished": [],
    "load": {"total_blocks": 1, "free_blocks": 1, "running": 0, "waiting": 0},
}
ONE_ROW = [["<i8", [1]], ["<i4", [1]]]


def test_the_frame_that_the_wrong_ones_differ_from_is_right() -> None:
    frame = WIRE.decode(*payload(FRAME, ONE_ROW, bytes(16)))

    assert (frame.streams.tolist(), frame.tokens.tolist()) == ([0], [0])


@pytest.mark.parametrize(
    ("body", "manifest", "size"),
    [
        ({**FRAME, "kind": "Plan"}, ONE_ROW, 16),
        ({**FRAME, "more": 1}, ONE_ROW, 16),
        ({**FRAME, "streams": 1}, ONE_ROW, 16),  # int32 where int64 is due
        ({**FRAME, "streams": -2}, ONE_ROW, 16),
        ({**FRAME, "streams": True}, ONE_ROW, 16),
        ({**FRAME, "tokens": 2}, ONE_ROW, 16),
        ({**FRAME, "load": {**FRAME["load"], "running": "0"}}, ONE_ROW, 16),  # type: ignore[dict-item]
        (FRAME, ONE_ROW, 24),
        (FRAME, [["<i8", [1]], ["<i4", [2]]], 16),  # columns of different length
        (FRAME, [["<i8", [1]], ["<i4", [2**40]]], 16),
        (FRAME, [["<i8", [-1]], ["<i4", [1]]], 16),
        (FRAME, [["<i8", [1]], ["O", [1]]], 16),
        (FRAME, {"a": 1}, 16),
        ([FRAME], ONE_ROW, 16),
        (None, [], 0),
    ],
)
def test_what_is_not_exactly_a_message_is_refused(body: Any, manifest: Any, size: int) -> None:
    with pytest.raises(WireError):
        WIRE.decode(*payload(body, manifest, bytes(size)))


def test_an_error_tells_nothing_of_what_was_sent() -> None:
    body = {"kind": "Hello", "gateway": "a", "secret-word": 1}

    with pytest.raises(WireError) as told:
        WIRE.decode(*payload(body, []))

    assert "secret-word" not in str(told.value)
    assert told.value.__suppress_context__
