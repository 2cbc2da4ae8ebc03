"""What the pages point to is there: files, headings, settings, commands."""

import re
from urllib.parse import urlsplit

import pytest

from markdown_pages import GUIDES, PAGES, ROOT, Page
from plancha_app.commands.all import app
from plancha_app.settings.tables import NAMED, tables

PACKAGES = ("core", "core/plancha", "core/plancha_engine", "schedulers", "allocators", "transports")
SOURCES = ("", "tests", *PACKAGES)
FILE = r"[\w.-]+/[\w./-]*\.(py|md|toml|yml|json|conf|service|svg|html|js|css)"
FOLDER = r"(docs|deploy|tests)/[\w/]*"
FILE_ENDINGS = {"db", "key", "anchor", "sqlite", "toml"}  # texts.db is no setting


def of_file(header: str) -> str:
    """A table as a file's keys begin: `tenants` for [tenants.NAME]."""
    return header.partition(".")[0] if header in NAMED.values() else header


SETTINGS = {f"{of_file(table.header)}.{key.name}" for table in tables() for key in table.keys}
HEADERS = {name.partition(".")[0] for name in SETTINGS}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Page) -> None:
    for link in page.links():
        parts = urlsplit(link)
        if parts.scheme:
            assert parts.scheme in ("http", "https"), link
            continue
        target = page.path.parent / parts.path if parts.path else page.path
        assert target.exists(), link
        if parts.fragment:
            assert parts.fragment in Page(target).anchors(), link


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_paths_that_are_named_exist(page: Page) -> None:
    for name in page.names():
        if re.fullmatch(f"{FILE}|{FOLDER}", name):
            places = (ROOT / source / name for source in SOURCES)
            assert any(place.exists() for place in places), name


@pytest.mark.parametrize("page", GUIDES, ids=str)
def test_settings_that_are_named_exist(page: Page) -> None:
    for name in page.names():
        found = re.fullmatch(r"\[(\w+)(?:\.\w+)?\] (\w+)|(\w+)\.(\w+)", name)
        if found:
            header, key = found[1] or found[3], found[2] or found[4]
            if header not in HEADERS or key in FILE_ENDINGS:
                continue
            assert f"{header}.{key}" in SETTINGS, name


@pytest.mark.parametrize("page", GUIDES, ids=str)
def test_commands_that_are_named_exist(page: Page) -> None:
    known = {name for name in app if not name.startswith("-")}
    for name in page.names():
        found = re.match(r"plancha ([a-z]+)", name)
        assert found is None or found[1] in known, name
