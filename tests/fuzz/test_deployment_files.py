"""Mutated deployment files: right, or refused with every mistake named; never anything else."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plancha_app.assembly import prepare
from plancha_app.deployment import DeploymentError

pytestmark = pytest.mark.fuzz
LONG = settings.get_current_profile_name() == "fuzz"
SHIPPED = (Path(__file__).parents[2] / "plugins.toml").read_text()
UNCOMMENTED = re.sub(r"^# (?=\w+ = )", "", SHIPPED, flags=re.MULTILINE)
LINES = UNCOMMENTED.splitlines()

MOST_PROBLEM_CHARACTERS = 1000

NAMED = re.compile(
    r"[\w.\"'-]+(\.[\w.\"'-]+)*(:| )|\(at (line|end)|line \d+|is not UTF-8|digits|nested"
)
"""A key, or how the file breaks TOML."""

VALUES = st.sampled_from(
    [
        *("0", "-1", "1e400", "nan", "inf", "-inf", "true", '""', '"a"', "[]", "{}", "[[]]"),
        *("99999999999999999999999", "0x" + "f" * 5000, "9" * 5000, "1979-05-27", "07:32:00"),
        *("[" * 5000, "{a=" * 5000, '"' + "x" * 100_000 + '"', "'''", '"\\ud800"', '"\\u0000"'),
        *("{ plugin = 1 }", '{ plugin = "nobody" }', '{ plugin = "http", plugin = "http" }'),
        *("[1, 2, 3]", '"../../etc/passwd"', '"http://["', '"8GiB"', '"-1MiB"', '"1e999MiB"'),
    ]
)
NAMES = st.sampled_from(["", "a", "plugin", "default", "x.y", '"a b"', '"\\u0000"', "ü", "é" * 500])
HEADERS = st.sampled_from(
    ["[x]", "[[model]]", "[tenants]", "[tenants.a]", "[transport]", "[transport.http.x]", "[", "]"]
)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(lines) - 1))
        key = lines[at].partition("=")[0]
        match draw(st.sampled_from(["value", "value", "key", "header", "delete", "again", "line"])):
            case "value" if "=" in lines[at]:
                lines[at] = f"{key}= {draw(VALUES)}"
            case "key" if "=" in lines[at]:
                lines[at] = f"{draw(NAMES)} = {lines[at].partition('=')[2]}"
            case "header":
                lines[at] = draw(HEADERS)
            case "delete":
                lines[at] = ""
            case "again":
                lines.insert(draw(st.integers(0, len(lines))), lines[at])
            case "line":
                lines[at] = draw(st.text(max_size=20))
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    if draw(st.booleans()):
        at = draw(st.integers(0, len(text) - 1))
        text = text[:at] + draw(st.binary(max_size=6)) + text[at + 2 :]
    return text


@settings(
    max_examples=1000 if LONG else 150,
    derandomize=not LONG,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(content=files())
def test_a_mutated_file_is_right_or_every_mistake_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "plugins.toml"
    file.write_bytes(content)
    try:
        prepare(file)
    except DeploymentError as error:
        assert error.problems
        for problem in error.problems:
            assert NAMED.search(problem), problem
            assert len(problem) < MOST_PROBLEM_CHARACTERS, problem


@settings(
    max_examples=2000 if LONG else 100,
    derandomize=not LONG,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(content=st.binary(max_size=200))
def test_bytes_that_are_no_file_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "plugins.toml"
    file.write_bytes(content)
    try:
        prepare(file)
    except DeploymentError as error:
        assert error.problems
