"""Templates that attack: refused or bounded, for that request alone."""

from typing import Any

import attrs
import pytest

from plancha.failure import RequestFailed
from plancha_text.byte_text import byte_text, byte_tokenizer
from plancha_text.chat_template import ChatTemplate
from plancha_text.template_budget import Budget, TooMuch

MESSAGES = [{"role": "user", "content": "hi"}]


BYTES = byte_tokenizer()


def outcome(template: str) -> str:
    chat = ChatTemplate(template, BYTES, seconds=0.2)
    with pytest.raises(RequestFailed) as refused:
        chat.encode(MESSAGES)
    assert (refused.value.failure.kind, refused.value.failure.param) == ("invalid", "messages")
    return refused.value.failure.message


TAKES_TOO_MUCH = "The model's chat template takes too much for these messages."
CANNOT = "The model's chat template cannot take these messages."

DOUBLING = (
    "{{% set ns = namespace(x={0}) %}}"
    "{{% for i in range(60) %}}{{% set ns.x = {1} %}}{{% endfor %}}"
)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(90000) %}{% for j in range(90000) %}x{% endfor %}{% endfor %}",
        "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * 'a' }}",
        "{{ ['a'] * 10**9 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 1000000000) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ ('a' | safe).center(1000000000) }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ 'a' | indent(1000000000, true) }}",
        "{{ [1] | batch(1000000000, 'x') | list }}",
        "{{ 1.5 | round(1000000000, 'floor') }}",
        "{{ [1] | tojson(indent=1000000000) }}",
        "{{ strftime_now('%1000000000Y') }}",
        "{{ ('a' * 1000).replace('a', 'a' * 1000).replace('a', 'a' * 1000) }}",
        "{{ ('a' * 1000) | replace('a', 'a' * 1000) | replace('a', 'a' * 1000) }}",
        "{{ ('a' * 100000).join(range(1000) | map('string')) }}",
        "{{ range(1000) | join('a' * 100000) }}",
        "{{ [[1]] | sum(start=[]) }}",
        DOUBLING.format("'a'", "ns.x + ns.x") + "{{ ns.x }}",
        DOUBLING.format("'a'", "ns.x ~ ns.x") + "{{ ns.x }}",
        DOUBLING.format("'a'", "'%s%s' % (ns.x, ns.x)") + "{{ ns.x }}",
        DOUBLING.format("'a'", "'{0}{0}'.format(ns.x)") + "{{ ns.x }}",
        DOUBLING.format("[1]", "ns.x + ns.x") + "{{ ns.x }}",
        DOUBLING.format("[1]", "[ns.x, ns.x]") + "{{ ns.x }}",
        DOUBLING.format("[1]", "(ns.x, ns.x)") + "{{ ns.x == (ns.x, 1) }}",
        DOUBLING.format("[1]", "{'a': ns.x, 'b': ns.x}") + "{{ ns.x | tojson }}",
        DOUBLING.format("[1]", "dict(a=ns.x, b=ns.x)") + "{{ ns.x | string }}",
        DOUBLING.format("[1]", "[1, 2] | map(attribute='x', default=ns.x) | list"),
        "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}"
        "{% set ns.l = ns.l + ['a' * 900000] %}{% endfor %}",
        "{% set ns = namespace() %}{% for i in range(90000) %}{% set n = namespace(p=ns.x) %}"
        "{% set n.t = 'a' * 900000 %}{% set ns.x = n %}{% endfor %}",
        "{% set ns = namespace() %}{% set s = 'a' * 900000 %}{% for i in range(90000) %}"
        "{% set n = namespace(p=ns.x) %}{% set n.t = s[1:] %}{% set ns.x = n %}{% endfor %}",
        "{% macro m(n) %}{% for i in range(1000) %}{{ 'a' * 900000 }}{% endfor %}{% endmacro %}"
        "{{ m(1) }}",
        "{% set x %}{% for i in range(1000) %}{{ 'a' * 900000 }}{% endfor %}{% endset %}{{ x }}",
    ],
)
def test_a_template_that_takes_too_much_ends(template: str) -> None:
    assert outcome(template) == TAKES_TOO_MUCH


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__init__.__globals__ }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='system') }}",
        "{{ (5).to_bytes(1000000000, 'big') }}",
        "{{ 'a'.encode().hex('-', 1) }}",
        "{{ 'a'.translate({97: 'b'}) }}",
        "{{ lipsum(1000000) }}",
        "{{ range(1000000000) | list }}",
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% extends 'x' %}",
        "{{ undefined_function() }}",
        "{{ messages.nothing.at_all }}",
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ namespace(a=1) | tojson }}",
    ],
)
def test_a_template_that_tries_the_forbidden_or_fails_shows_no_trace(template: str) -> None:
    assert outcome(template) == CANNOT


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__ }}",
        "{{ '' | attr('__class__') }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ raise_exception.__globals__ }}",
    ],
)
def test_what_is_forbidden_is_not_there_to_see(template: str) -> None:
    assert ChatTemplate(template, BYTES).encode(MESSAGES).size == 0


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ 'In 2024 %s costs 12345 {}' % 'it' }}", "In 2024 it costs 12345 {}"),
        ("{{ '{{1000}} {0:>4} {x}'.format('a', x=123456) }}", "{1000}    a 123456"),
        ("{{ '%5d|%.2f|%-3s|%%' | format(7, 1.5, 'a') }}", "    7|1.50|a  |%"),
        (
            "{{ 'a\nb' | indent(2) }}{{ 'x'.center(3) }}{{ 'ab'.replace('b', 'cd') }}",
            "a\n  b x acd",
        ),
        ("{{ ['a', 'b'] | join(', ') }}{{ ','.join(['c', 'd']) }}{{ [1, 2] | sum }}", "a, bc,d3"),
        ("{{ 2 ** 10 }}{{ 3 * 'ab' }}{{ [1] * 2 }}{{ 1 + 2 }}{{ 7 % 4 }}", "1024ababab[1, 1]33"),
    ],
)
def test_what_takes_little_is_done(template: str, text: str) -> None:
    assert bytes(ChatTemplate(template, BYTES).encode(MESSAGES).tolist()).decode() == text


def test_a_namespace_does_not_show_what_it_holds() -> None:
    nested = "{% set ns = namespace() %}{% for i in range(60) %}{% set n = namespace() %}"
    nested += "{% set n.a = ns.x %}{% set n.b = ns.x %}{% set ns.x = n %}{% endfor %}{{ ns.x }}"
    ids = byte_text(chat_template=nested).encode_chat(MESSAGES)
    assert bytes(ids.tolist()) == b"<namespace>"


def test_loops_end_when_the_time_is_up() -> None:
    template = "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}"
    with pytest.raises(RequestFailed) as refused:
        ChatTemplate(template, BYTES, seconds=0.001).encode(MESSAGES)
    assert refused.value.failure.message == TAKES_TOO_MUCH


def test_the_next_chat_is_rendered_after_one_that_failed() -> None:
    template = "{% if messages[0].content == 'bad' %}{{ 'a' * 10**9 }}{% endif %}ok"
    text = byte_text(chat_template=template)
    for _ in range(2):
        with pytest.raises(RequestFailed):
            text.encode_chat([{"role": "user", "content": "bad"}])
        assert bytes(text.encode_chat(MESSAGES).tolist()) == b"ok"


def test_output_is_bounded_by_ten_times_what_was_given() -> None:
    budget = Budget({"messages": ["a" * 200_000]})
    budget.admit(2_000_000)
    with pytest.raises(TooMuch):
        budget.admit(2_000_200)
    with pytest.raises(TooMuch):
        Budget({}).admit(1_000_001)


@pytest.mark.parametrize(
    ("value", "size"), [("abc", 3), (["abc", "d"], 7), ({"a": {"b": "cd"}}, 8), (None, 0), (1, 1)]
)
def test_sizes_count_characters_and_elements(value: Any, size: int) -> None:
    assert Budget(None).size(value) == size
    assert Budget(value).size(value) == size or not isinstance(value, list | dict)


def test_a_long_chat_is_rendered() -> None:
    messages = [{"role": "user", "content": "What is it? " * 50}] * 3000
    ids = byte_text().encode_chat(messages)
    turn = len("<user\n" + "What is it? " * 50 + ">\n")
    assert ids.size == 3000 * turn + len("<assistant\n")


def test_a_tokenizer_without_special_tokens_has_chats_too() -> None:
    plain = attrs.evolve(BYTES, special={}, named={})
    assert bytes(ChatTemplate("a{{ messages | length }}", plain).encode(MESSAGES).tolist()) == b"a1"
