"""Schemas are judged before anything is promised, and the worst of them harm nobody."""

import json
import socket
import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest

import plancha.calls.grammar_check as grammar_check
from plancha.calls.grammar_check import GrammarCheck
from plancha.failure import RequestFailed
from plancha.sampling import Sampling


async def problem_with(schema: Any, sampling: Sampling | None = None) -> Any:
    """The failure that a schema gets; None: it is taken."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    try:
        await GrammarCheck().check(text, sampling or Sampling(), "default")
    except RequestFailed as refused:
        return refused.failure
    return None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "string", "format": "date"}}},
        {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"},
        {"oneOf": [{"type": "string"}, {"type": "integer"}], "title": "T", "x-anything": 1},
        {"type": "number", "minimum": 0, "multipleOf": 0.01},
        {"type": "string", "maxLength": 10**9},
        {"type": "array", "items": {"type": "null"}, "minItems": 10**6},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "enum": [1, "a", None]},
    ],
    ids=str,
)
async def test_a_schema_that_can_be_followed_is_taken(schema: dict[str, Any]) -> None:
    assert await problem_with(schema) is None


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "strin"}, "strin"),
        ({"type": 5}, "type must be"),
        ({"not": {"type": "string"}}, "not"),
        ({"enum": []}, "Unsatisfiable"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "minimum"),
        ({"type": "string", "pattern": "(a"}, "unclosed group"),
        ({"type": "string", "format": "wibble"}, "wibble"),
        ({"$ref": "#/$defs/nowhere"}, "nowhere"),
        ({"$ref": "#"}, "Nothing can follow it"),
        ({"x-guidance": {"lenient": True}, "not": {}}, "not"),
        ("[]", "object"),
        ("{", "EOF"),
    ],
    ids=str,
)
async def test_a_schema_that_cannot_be_followed_is_refused_with_the_reason(
    schema: Any, says: str
) -> None:
    failure = await problem_with(schema)
    assert (failure.kind, failure.param) == ("invalid", "response_format")
    assert says in failure.message
    assert len(failure.message) < 400


def chain_of_references(length: int) -> dict[str, Any]:
    links = {str(link): {"$ref": f"#/$defs/{link + 1}"} for link in range(length)}
    return {"$ref": "#/$defs/0", "$defs": {**links, str(length): {"type": "null"}}}


@pytest.mark.parametrize(
    "schema",
    [
        chain_of_references(3000),
        {"type": "integer", "multipleOf": 10**9 - 1},
        {"patternProperties": {f"^a{{{i}}}b": {"type": "null"} for i in range(300)}},
        {"allOf": [{"anyOf": [{"required": [f"{i}{j}"]} for j in range(6)]} for i in range(9)]},
    ],
    ids=["references", "multiple", "patterns", "product"],
)
async def test_a_schema_that_would_end_the_process_or_stall_it_is_refused(
    schema: dict[str, Any],
) -> None:
    failure = await problem_with(schema)
    assert (failure.kind, failure.param) == ("invalid", "response_format")


async def test_references_are_not_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        failure = await problem_with({"$ref": f"http://127.0.0.1:{port}/schema.json"})
        assert "retriev" in failure.message
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert await problem_with({"$ref": "file:///etc/hostname"}) is not None


@pytest.mark.parametrize(
    ("sampling", "param"),
    [(Sampling(ignore_eos=True), "ignore_eos"), (Sampling(min_tokens=1), "min_tokens")],
)
async def test_what_contradicts_the_schemas_end_is_refused(sampling: Sampling, param: str) -> None:
    failure = await problem_with({"type": "object"}, sampling)
    assert (failure.kind, failure.param) == ("invalid", param)
    assert "response_format" in failure.message


async def test_without_the_extra_the_answer_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_check, "grammar_installed", lambda: False)
    failure = await problem_with({"type": "object"})
    assert (failure.kind, failure.param) == ("invalid", "response_format")
    assert "plancha[grammar]" in failure.message


async def test_a_schema_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(schema: str) -> str | None:
        asked.append(schema)
        return None if "good" in schema else "It is bad."

    monkeypatch.setattr(grammar_check, "_ask", ask)
    monkeypatch.setattr(grammar_check, "REMEMBERED_SCHEMAS", 2)
    checks = GrammarCheck()
    for schema in ("good", "good", "bad", "bad", "good 2", "good"):
        if "good" in schema:
            await checks.check(schema, Sampling(), "default")
        else:
            with pytest.raises(RequestFailed, match=r"It is bad\."):
                await checks.check(schema, Sampling(), "default")
    assert asked == ["good", "bad", "good 2", "good"]  # of two, the oldest is forgotten


async def test_a_schema_that_many_ask_for_at_once_is_compiled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(grammar_check, "_ask", asked.append)  # which finds nothing wrong
    checks = GrammarCheck()
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(checks.check, "good", Sampling(), "acme")
    assert asked == ["good"]


async def test_what_a_tenant_asked_for_makes_no_difference_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(grammar_check, "_ask", asked.append)
    checks = GrammarCheck()
    for tenant in ("acme", "globex", "acme"):
        await checks.check("good", Sampling(), tenant)
    assert asked == ["good", "good"]


async def test_a_tenants_bad_schemas_hold_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gate = threading.Semaphore(0), threading.Event()

    def ask(schema: str) -> None:
        if schema.startswith("slow"):
            begun.release()
            gate.wait()

    monkeypatch.setattr(grammar_check, "_ask", ask)
    checks = GrammarCheck()
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(checks.check, f"slow {number}", Sampling(), "flooding")
        await anyio.to_thread.run_sync(begun.acquire)
        await checks.check("quick", Sampling(), "other")
        assert not begun.acquire(blocking=False)  # the flood has one turn at a time
        gate.set()
