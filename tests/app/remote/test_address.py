from pathlib import Path

import pytest

from plancha_app.complaints import Mistake
from plancha_app.remote.address import HERE, Address
from plancha_app.remote.api_key import headers


@pytest.mark.parametrize(
    ("written", "root", "api"),
    [
        ("http://h:8000", "http://h:8000", "http://h:8000/v1"),
        ("http://h:8000/", "http://h:8000", "http://h:8000/v1"),
        ("http://h:8000/v1", "http://h:8000", "http://h:8000/v1"),
        ("http://h:8000/v1/", "http://h:8000", "http://h:8000/v1"),
        ("https://h/llm", "https://h/llm", "https://h/llm/v1"),
        ("h:8000", "http://h:8000", "http://h:8000/v1"),
        ("localhost", "http://localhost", "http://localhost/v1"),
        ("[::1]:80", "http://[::1]:80", "http://[::1]:80/v1"),
        ("https://h/v1beta/openai/", "https://h/v1beta", "https://h/v1beta/openai"),
    ],
)
def test_an_address_may_be_written_with_its_version_or_without(
    written: str, root: str, api: str
) -> None:
    assert Address.parse(written) == Address(root, api)


@pytest.mark.parametrize(
    "written",
    ["", "http://", "ftp://h", "http://h:99999", "http://h:x", "http://h:0", "http://a b", "h?x=1",
     "http://user@h", "http://h/#x", "://h"],
)  # fmt: skip
def test_what_is_no_address_is_a_mistake(written: str) -> None:
    with pytest.raises(Mistake):
        Address.parse(written)


def test_what_is_typed_goes_before_the_environment_and_that_before_this_machine() -> None:
    elsewhere = {"OPENAI_BASE_URL": "https://api.example/custom/"}

    assert Address.choose("http://h", elsewhere).api == "http://h/v1"
    assert Address.choose(None, elsewhere).api == "https://api.example/custom"
    assert Address.choose(None, {"OPENAI_BASE_URL": " "}).root == HERE
    assert Address.choose(None, {}).api == "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    ("host", "is_here"), [("127.0.0.1", True), ("localhost", True), ("[::1]", True), ("h", False)]
)
def test_only_other_machines_are_asked_through_a_proxy(host: str, is_here: bool) -> None:
    assert Address.parse(f"http://{host}:1").is_here is is_here


def test_a_key_is_one_word_of_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(" sk-1\n")

    assert headers(file, {"OPENAI_API_KEY": "sk-2"}) == {"Authorization": "Bearer sk-1"}
    assert headers(None, {"OPENAI_API_KEY": "sk-2"}) == {"Authorization": "Bearer sk-2"}
    assert headers(None, {"OPENAI_API_KEY": ""}) == headers(None, {}) == {}


@pytest.mark.parametrize("held", [b"", b"two words", b"sk-\xff", b"sk-\x001"])
def test_a_file_without_a_key_is_a_mistake_that_does_not_show_it(
    tmp_path: Path, held: bytes
) -> None:
    file = tmp_path / "key"
    file.write_bytes(held)

    with pytest.raises(Mistake, match="holds no key") as raised:
        headers(file, {})
    assert "words" not in str(raised.value) and "sk-" not in str(raised.value)


def test_a_key_that_no_header_can_carry_is_a_mistake() -> None:
    with pytest.raises(Mistake, match="OPENAI_API_KEY"):
        headers(None, {"OPENAI_API_KEY": "sk-1\nX-Evil: 1"})
