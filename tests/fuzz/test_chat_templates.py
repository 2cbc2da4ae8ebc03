"""Hostile chat templates: text, or a refusal of the one request; bounded in time and memory."""

import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plancha.contracts import LoadError
from plancha.failure import RequestFailed
from plancha_text.byte_text import byte_tokenizer
from plancha_text.chat_template import ChatTemplate

pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(120)]
LONG = settings.get_current_profile_name() == "fuzz"
BYTES = byte_tokenizer()
MESSAGES = [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "x" * 1000}]
BUDGET_S = 0.1
MOST_BYTES = 300_000_000

quick = settings(
    max_examples=500 if LONG else 100,
    derandomize=not LONG,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

ATOMS = [
    *("messages", "messages[0]", "messages[1].content", "messages[0]['role']", "x", "ns", "ns.v"),
    *("'a'", "'%s{}'", "''", "0", "1", "-1", "10 ** 9", "1e308", "true", "none", "[]", "{}", "[1]"),
    *("range(99999)", "range", "dict", "namespace", "cycler", "joiner", "lipsum", "self", "loop"),
    *("raise_exception", "strftime_now", "bos_token", "undefined", "''.__class__", "caller"),
]
FILTERS = [
    *("length", "list", "string", "upper", "join(',')", "tojson", "tojson(indent=9999)", "safe"),
    *("replace('a', 'aaaaaaaaaa')", "center(9999)", "indent(9999)", "batch(9999, 'x')", "slice(9)"),
    *("map('upper')", "map(attribute='__class__')", "select", "reject('none')", "groupby('role')"),
    *("sort", "unique", "sum", "sum(start=[])", "max", "reverse", "first", "attr('__init__')"),
    *("format(1)", "default('y')", "dictsort", "items", "trim", "title", "wordcount", "urlencode"),
    *("float", "int", "int(base=99)", "abs", "round(99)", "filesizeformat", "forceescape", "e"),
]
METHODS = [
    *("format(1)", "format(x=messages)", "join(messages)", "split('a')", "strip()", "upper()"),
    *("ljust(99999999)", "zfill(99999999)", "replace('', 'b' * 9999)", "encode()", "items()"),
    *("append(1)", "keys()", "values()", "update(a=1)", "__class__", "__mro__", "mro()", "copy()"),
    *("partition('a')", "splitlines()", "count('a')", "expandtabs(99999999)", "format_map({})"),
]
OPERATORS = ["+", "-", "*", "**", "%", "//", "/", "~", "==", "<", "in", "and", "or", "is"]

expressions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(lambda it: f"({' '.join(it)})"),
        st.tuples(inner, st.sampled_from(FILTERS)).map(lambda it: f"({it[0]} | {it[1]})"),
        st.tuples(inner, st.sampled_from(METHODS)).map(lambda it: f"({it[0]}).{it[1]}"),
        st.tuples(inner, inner).map(lambda it: f"({it[0]})[{it[1]}]"),
        st.tuples(inner, inner).map(lambda it: f"({it[0]})[:{it[1]}]"),
        st.tuples(inner, inner).map(lambda it: f"[{it[0]}, {it[1]}]"),
        st.tuples(inner, inner, inner).map(lambda it: f"({it[0]} if {it[1]} else {it[2]})"),
        st.tuples(inner, inner).map(lambda it: f"({it[0]})({it[1]})"),
    ),
    max_leaves=8,
)
statements = st.recursive(
    st.one_of(
        expressions.map(lambda it: f"{{{{ {it} }}}}"),
        expressions.map(lambda it: f"{{% set x = {it} %}}"),
        expressions.map(lambda it: f"{{% set ns = namespace(v={it}) %}}"),
        expressions.map(lambda it: f"{{% set ns.v = {it} %}}"),
        st.sampled_from(["{% break %}", "{% continue %}", "text", "{# no #}", "{% raw %}{{"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.tuples(expressions, inner).map(lambda it: f"{{% if {it[0]} %}}{it[1]}{{% endif %}}"),
        st.tuples(expressions, inner).map(
            lambda it: f"{{% for m in {it[0]} %}}{it[1]}{{% endfor %}}"
        ),
        st.tuples(expressions, inner).map(
            lambda it: f"{{% for m in {it[0]} recursive %}}{it[1]}{{{{ loop(m) }}}}{{% endfor %}}"
        ),
        inner.map(lambda it: f"{{% macro f(a) %}}{it}{{% endmacro %}}{{{{ f(x) }}}}"),
        inner.map(lambda it: f"{{% set x %}}{it}{{% endset %}}"),
        inner.map(lambda it: f"{{% filter upper %}}{it}{{% endfilter %}}"),
        inner.map(lambda it: f"{{% generation %}}{it}{{% endgeneration %}}"),
        inner.map(lambda it: f"{{% call(y) f(1) %}}{it}{{% endcall %}}"),
    ),
    max_leaves=6,
)


@quick
@given(source=statements)
def test_a_template_of_any_kind_ends_in_text_or_a_refusal(source: str) -> None:
    assert_bounded(source)


@quick
@given(pieces=st.lists(st.sampled_from([*"{}%#-'\"()[].|~*", *ATOMS, *FILTERS, "endfor", " "])))
def test_source_that_is_no_template_is_refused_when_loaded(pieces: list[str]) -> None:
    assert_bounded("{{" + "".join(pieces))


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 10_000 + ")" * 10_000 + " }}",
        "{{ " + "[" * 500 + "]" * 500 + " }}",
        "{{ " + "-" * 20_000 + "1 }}",
        "{{ " + "1 + " * 20_000 + "1 }}",
        "{{ x" + ".a" * 20_000 + " }}",
        "{{ x" + " | list" * 5_000 + " }}",
        "{% if x %}" * 200 + "{% endif %}" * 200,
        "{% for m in messages %}" * 30 + "x" + "{% endfor %}" * 30,
        "{% if 1 %}" * 20_000,
        "{{ '" + "\\x41" * 100_000 + "' }}",
        "{{ " + "9" * 5_000 + " }}",
        "{{ 1e999 * 0 }}",
        "\0\ufffe\ud83d",
        "{{ '\\ud83d' }}",
    ],
    ids=lambda source: source[:20].encode("ascii", "backslashreplace").decode(),
)
def test_source_that_nests_or_repeats_without_end_is_bounded(source: str) -> None:
    assert_bounded(source)


def assert_bounded(source: str) -> None:
    """No other exception, and an end; each rendering has the budget."""
    tracemalloc.start()
    try:
        chat = ChatTemplate(source, BYTES, seconds=BUDGET_S)
        assert chat.encode(MESSAGES).size >= 0
    except LoadError as error:
        assert "chat template" in str(error)
    except RequestFailed as failed:
        assert failed.failure.kind == "invalid"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MOST_BYTES
