"""One server for the tests of a file that leave it as they found it."""

from collections.abc import Iterator

import pytest

from server_processes import Server, started


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Perhaps still starting."""
    with started(tmp_path_factory.mktemp("processes")) as server:
        yield server


@pytest.fixture
async def server(shared: Server) -> Server:
    """Both of its gateways serve."""
    await shared.ready()
    return shared
