"""Matchers over a vocabulary of bytes: what a schema lets through, and how an output ends."""

from collections.abc import Iterable

import attrs
import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from plancha.calls.grammar import compile_schema
from plancha.plans import Join
from plancha.sampling import Sampling
from plancha_engine.arrays import Float32s
from plancha_engine.grammar import JsonGrammars
from plancha_engine.sampler import Sampler

EOS, OTHER_EOS, BOS = 257, 259, 256
TOKENS = [*[bytes([byte]) for byte in range(256)], *[b""] * 4, b'{"', b'": ', b"true", b"12"]
DIGITS = set(b"0123456789")
TAIL = np.array([7], np.int32)  # the prompt, which no grammar looks at

PERSON = """{
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 3}},
    "required": ["a", "b"],
    "additionalProperties": false
}"""


def grammars(tokens: list[bytes] = TOKENS) -> JsonGrammars:
    return JsonGrammars(tokens, (EOS, OTHER_EOS), max_sequences=4)


def join(
    slot: int,
    grammar: str | None,
    output: Iterable[int] = (),
    stop_ids: tuple[int, ...] = (EOS, OTHER_EOS),
    sampling: Sampling | None = None,
) -> Join:
    ids = np.array([*TAIL, *output], np.int32)
    return Join(
        slot, slot, ids, TAIL.size, stop_ids, 0, sampling or Sampling(temperature=0), None, False,
        grammar,
    )  # fmt: skip


def allowed(held: JsonGrammars, slot: int = 0, vocabulary: int = len(TOKENS)) -> set[int]:
    """Ids whose logits are left as they were; {-1}: the row was made to fail."""
    logits = np.zeros((1, vocabulary + 3), np.float32)
    held.mask(logits, np.array([slot], np.int32))
    assert (logits[0, vocabulary:] == 0).all()  # padding belongs to nobody
    if np.isnan(logits[0, 0]):
        return {-1}
    return set(np.flatnonzero(logits[0, :vocabulary] == 0).tolist())


def write(held: JsonGrammars, text: bytes, slot: int = 0) -> None:
    for byte in text:
        assert byte in allowed(held, slot), f"{bytes([byte])!r} is not let through"
        held.advance(np.array([slot], np.int32), np.array([byte], np.int32))


def test_only_what_goes_on_in_the_schema_is_let_through() -> None:
    held = grammars()
    held.join(join(0, PERSON))
    assert allowed(held) == {ord("{"), TOKENS.index(b'{"')}
    write(held, b'{"')
    assert allowed(held) == {ord("a")}
    write(held, b'a":')
    assert allowed(held) >= DIGITS | {ord("-"), ord(" "), TOKENS.index(b"12")}
    assert ord('"') not in allowed(held)
    write(held, b' 7,\n  "b": "xyz')
    assert allowed(held) == {ord('"')}


def test_the_end_is_let_through_exactly_where_the_json_is_complete() -> None:
    held = grammars()
    held.join(join(0, PERSON))
    for byte in b'{"a": 7, "b": "x"}':
        assert not {EOS, OTHER_EOS} & allowed(held)
        write(held, bytes([byte]))
    assert allowed(held) == {EOS, OTHER_EOS}
    held.join(join(1, '{"type": "integer"}'))
    write(held, b"12", slot=1)
    assert allowed(held, 1) == DIGITS | {EOS, OTHER_EOS, TOKENS.index(b"12")}


def test_stop_ids_of_the_request_end_a_complete_output_too() -> None:
    held = grammars()
    held.join(join(0, '{"enum": ["yes"]}', stop_ids=(EOS, BOS, ord("!"))))
    write(held, b'"yes"')
    assert allowed(held) == {EOS, OTHER_EOS, BOS, ord("!")}


def test_a_stop_id_that_is_text_stops_wherever_it_is_text() -> None:
    held = grammars()
    held.join(join(0, '{"enum": ["a!b"]}', stop_ids=(EOS, ord("!"))))
    write(held, b'"a')
    assert allowed(held) == {ord("!")}


def test_ids_without_text_of_their_own_never_come_into_a_string() -> None:
    held = grammars()
    held.join(join(0, '{"type": "string"}'))
    write(held, b'"<|im_end|>')
    assert not set(range(256, 260)) & allowed(held)


def test_ids_of_the_same_text_are_let_through_alike() -> None:
    held = grammars([*TOKENS, b"{", b"{"])
    held.join(join(0, PERSON))
    some = allowed(held, vocabulary=len(TOKENS) + 2)
    assert {ord("{"), len(TOKENS), len(TOKENS) + 1} <= some


def test_a_character_of_several_tokens_is_let_through_whole_only() -> None:
    held = grammars()
    held.join(join(0, '{"type": "string"}'))
    write(held, '"ж'.encode()[:-1])
    assert allowed(held) == set(range(0x80, 0xC0))


def test_white_space_comes_to_an_end() -> None:
    held = grammars()
    held.join(join(0, PERSON))
    write(held, b"{ ")
    assert allowed(held) == {ord('"')}
    held.join(join(0, PERSON))
    write(held, b"{\n" + b" " * 32)
    assert allowed(held) == {ord('"')}


def test_what_a_schema_says_to_the_library_is_not_heeded() -> None:
    held = grammars()
    options = '{"item_separator": "zz", "whitespace_pattern": "z", "lenient": true}'
    held.join(join(0, f'{{"x-guidance": {options}, "type": "array", "items": {{"const": 1}}}}'))
    write(held, b"[1")
    assert allowed(held) == {ord(","), ord("]"), ord(" "), ord("\n")}


def test_joining_with_output_goes_on_where_it_ended() -> None:
    held = grammars()
    text = b'{"a": 7, "b": "x"}'
    held.join(join(0, PERSON))
    for at in range(len(text)):
        held.join(join(1, PERSON, text[:at]))
        assert allowed(held, 1) == allowed(held, 0)
        write(held, text[at : at + 1])


def test_a_slot_is_held_to_the_schema_of_who_has_it() -> None:
    held = grammars()
    everything = set(range(len(TOKENS)))
    held.join(join(0, PERSON))
    held.join(join(1, '{"type": "integer"}'))
    held.join(join(0, None))
    assert allowed(held, 0) == everything
    held.leave(np.array([1, 3], np.int32))
    assert allowed(held, 1) == everything
    held.join(join(2, PERSON))
    held.reset()
    assert allowed(held, 2) == everything


def test_outputs_of_one_schema_go_their_own_ways() -> None:
    held = grammars()
    schema = '{"enum": ["ab", "xy"]}'
    held.join(join(0, schema))
    held.join(join(1, schema))
    write(held, b'"a', slot=0)
    write(held, b'"x', slot=1)
    assert allowed(held, 0) == {ord("b")}
    assert allowed(held, 1) == {ord("y")}


@pytest.mark.parametrize(
    ("grammar", "output"),
    [
        (PERSON, b"["),  # an output that the schema does not let through
        ('{"enum": []}', b""),  # cannot be compiled
        ('{"$ref": "#"}', b""),  # nothing follows it
        ("{", b""),
    ],
)
def test_what_cannot_go_on_fails_alone(grammar: str, output: bytes) -> None:
    sampler = Sampler(4, len(TOKENS), grammars())
    sampler.join(join(0, '{"type": "integer"}'))
    sampler.join(join(1, grammar, output))
    sampler.join(join(2, None))
    tokens, failed = sample(sampler, np.zeros((3, len(TOKENS)), np.float32))
    assert failed.tolist() == [False, True, False]
    assert tokens[0] in {*DIGITS, ord("-")}


def sample(sampler: Sampler, logits: Float32s) -> tuple[np.ndarray, np.ndarray]:
    slots = np.arange(len(logits), dtype=np.int32)
    lengths = np.full(len(logits), TAIL.size, np.int32)
    return sampler.sample(logits, slots, lengths, np.tile(TAIL, (len(logits), 8)))


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0, logit_bias=((ord("x"), 100.0), (ord("{"), -100.0))),
        Sampling(temperature=2, top_k=50),
        Sampling(temperature=2, top_p=0.5, min_p=0.3),
        Sampling(temperature=1e-5, presence_penalty=2, repetition_penalty=100),
    ],
    ids=str,
)
def test_no_bias_penalty_or_filter_gets_past_the_mask(sampling: Sampling) -> None:
    sampler = Sampler(4, len(TOKENS), grammars())
    logits = np.random.default_rng(2).standard_normal((4, len(TOKENS)), np.float32) * 30
    for slot in range(4):
        sampler.join(join(slot, PERSON, sampling=sampling))
    tokens, failed = sample(sampler, logits)
    assert not failed.any()
    assert set(tokens.tolist()) <= {ord("{"), TOKENS.index(b'{"')}


def test_the_draw_is_the_models_own_among_what_is_let_through() -> None:
    sampler = Sampler(4, len(TOKENS), grammars())
    sampler.join(join(0, '{"type": "boolean"}'))
    logits = np.zeros((1, len(TOKENS)), np.float32)
    logits[0, [ord("f"), ord("t"), TOKENS.index(b"true"), ord("z")]] = 1, 2, 3, 9
    tokens, _ = sample(sampler, logits)
    assert tokens.tolist() == [TOKENS.index(b"true")]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was compiled from here on."""
    found: list[str] = []

    def noted(tokenizer: LLTokenizer, schema: str) -> LLMatcher:
        found.append(schema)
        return compile_schema(tokenizer, schema)

    monkeypatch.setattr("plancha_engine.grammar.compile_schema", noted)
    return found


def test_a_schema_is_compiled_once_for_each_namespace_and_no_other_tells(
    compiled: list[str],
) -> None:
    held = grammars()
    for slot, namespace in enumerate((b"a\0", b"a\0", b"b\0", b"a\0")):
        held.join(attrs.evolve(join(slot, PERSON), namespace=namespace))
    assert compiled == [PERSON, PERSON]
    for slot in range(4):
        write(held, b'{"a', slot)  # each has a matcher of its own
