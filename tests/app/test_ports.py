"""What the parent of several gateways holds for them: ports, and the place of their link."""

import socket
import stat
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from plancha.contracts import LoadError
from plancha_app.deployment import Deployment, understand
from plancha_app.parent import make_link_path
from plancha_app.ports import hold_ports


def deployment(host: str, port: int) -> Deployment:
    made, problems = understand({"transport": {"http": {"host": host, "port": port}}})
    assert problems == ()
    return made


def listener(family: int, host: str, port: int, *, shared: bool) -> socket.socket:
    """As a gateway's, or a stranger's. An IPv6 one is no IPv4 one, as with asyncio."""
    made = socket.socket(family, socket.SOCK_STREAM)
    if shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        made.bind((host, port))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def family_of(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_gateways_share_a_free_port_that_no_stranger_gets(host: str) -> None:
    with ExitStack() as held:
        port = hold_ports(deployment(host, 0), held).transport["http"].options["port"]
        assert port > 0
        for _ in range(2):
            held.enter_context(listener(family_of(host), host, port, shared=True))
        with pytest.raises(OSError, match="in use"):
            listener(family_of(host), host, port, shared=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_port_that_somebody_listens_at_is_not_taken(host: str, shared: bool) -> None:
    with ExitStack() as held:
        theirs = held.enter_context(listener(family_of(host), host, 0, shared=shared))
        port = theirs.getsockname()[1]
        with pytest.raises(LoadError, match=f"port {port}: Address already in use"):
            hold_ports(deployment(host, port), held)


def test_all_of_ipv6_is_not_all_of_ipv4() -> None:
    with ExitStack() as held:
        theirs = held.enter_context(listener(socket.AF_INET, "0.0.0.0", 0, shared=False))
        port = theirs.getsockname()[1]
        assert hold_ports(deployment("::", port), held).transport["http"].options["port"] == port


def test_the_links_folder_is_for_this_user_alone_and_goes_at_the_end() -> None:
    with ExitStack() as held:
        path = Path(make_link_path(held))
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert list(path.parent.iterdir()) == []
    assert not path.parent.exists()


def test_a_temporary_folder_with_a_long_path_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with ExitStack() as held, pytest.raises(LoadError, match="TMPDIR"):
        make_link_path(held)
    assert list(long.iterdir()) == []


def test_a_temporary_folder_that_cannot_be_written_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with ExitStack() as held, pytest.raises(LoadError, match="TMPDIR"):
        make_link_path(held)
