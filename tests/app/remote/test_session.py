"""What goes along with a question to another machine, and which way."""

from pathlib import Path

import pytest

from openai_server import OpenAiServer, serving
from plancha_app.remote.address import Address
from plancha_app.remote.session import proxy_of, remote


@pytest.mark.parametrize("sent", [{"Authorization": "Bearer pk-1"}, {}])
async def test_no_password_of_netrc_is_sent_or_stands_in_the_way_of_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: dict[str, str]
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with serving(OpenAiServer()) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        async with remote(Address.parse("http://another-machine"), sent) as there:
            assert await there.models() == ["other-model"]

    assert proxy.keys == [sent.get("Authorization")]


def test_the_proxy_is_the_environments_and_none_for_what_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("https_proxy", "secure:3128")
    monkeypatch.setenv("no_proxy", "near")

    assert proxy_of(Address.parse("http://far:8000")) == "http://proxy:3128"
    assert proxy_of(Address.parse("https://far")) == "http://secure:3128"
    assert proxy_of(Address.parse("http://near")) is None
    assert proxy_of(Address.parse("http://127.0.0.1:8000")) is None
