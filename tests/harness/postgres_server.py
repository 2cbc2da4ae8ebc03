"""A PostgreSQL server of the tests' own: a folder, a Unix socket, no network."""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import asyncpg
import attrs

SAFE = "-c fsync=off -c full_page_writes=off -c max_connections=40"  # no power cut in these tests


@attrs.define
class PostgresServer:
    """Runs from the constructor on until `remove`. As root it belongs to another user."""

    program: Callable[[str], str]
    folder: Path = attrs.field(init=False)
    places: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        initdb = self.program("initdb")
        self.folder = Path(tempfile.mkdtemp(prefix="pg"))  # a socket's path may not be long
        if os.geteuid() == 0:
            user = pwd.getpwnam(self._user() or "")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self._run(
            initdb,
            *("-D", self._data, "-U", "plancha", "-A", "trust", "-E", "UTF8"),
            *("--locale=C", "--no-sync"),
        )
        self.start()

    def start(self) -> None:
        """Returns when it answers."""
        options = f"-k {self.folder} -c listen_addresses='' {SAFE}"
        self._run(
            self.program("pg_ctl"),
            *("-D", self._data, "-o", options, "-l", str(self.folder / "log"), "-w", "start"),
        )

    def stop(self, mode: str = "immediate") -> None:
        """As `kill -9` would, unless the mode is another."""
        self._run(self.program("pg_ctl"), "-D", self._data, "-m", mode, "-w", "stop")

    def remove(self) -> None:
        """Stop it and forget it."""
        self.stop()
        shutil.rmtree(self.folder)

    def new_place(self) -> str:
        """The DSN of an empty schema."""
        self.places += 1
        dsn = f"postgresql://plancha@/postgres?host={self.folder}"
        asyncio.run(execute(dsn, f"CREATE SCHEMA place{self.places}"))
        return f"{dsn}&search_path=place{self.places}"

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _user(self) -> str | None:
        if os.geteuid() != 0:
            return None
        names = {each.pw_name for each in pwd.getpwall()}
        return "postgres" if "postgres" in names else "nobody"

    def _run(self, *words: str) -> None:
        done = subprocess.run(
            words,
            user=self._user(),
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()


async def execute(dsn: str, statements: str) -> None:
    """Some statements on a connection of their own."""
    db = await asyncpg.connect(dsn)
    try:
        await db.execute(statements)
    finally:
        await db.close()
