"""A browser for all of these tests, and a page of its own for each."""

import re
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from browser import Tab, chromium, tab_of

GONE = re.compile(r"net::ERR_(CONNECTION|EMPTY_RESPONSE|INCOMPLETE|SOCKET)")
"""The server has stopped before the page, as at the end of every test."""


@pytest.fixture(scope="session")
def browser(
    program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with chromium(program("chromium"), tmp_path_factory.mktemp("profile")) as address:
        yield address


@pytest.fixture
async def tab(browser: str) -> AsyncIterator[Tab]:
    """Whatever a developer would see in red fails the test, unless it says that it is expected."""
    async with tab_of(browser) as tab:
        yield tab
        assert [each for each in tab.complaints if not GONE.search(each)] == []
