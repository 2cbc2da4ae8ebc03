"""A ledger's places: every test of one runs on SQLite and on PostgreSQL."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger_places import Place
from postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres(program: Callable[[str], str]) -> Iterator[PostgresServer]:
    server = PostgresServer(program)
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return Place(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    return Place(tmp_path, server.new_place())


@pytest.fixture
def sqlite_place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def postgres_place(postgres: PostgresServer, tmp_path: Path) -> Place:
    return Place(tmp_path, postgres.new_place())
