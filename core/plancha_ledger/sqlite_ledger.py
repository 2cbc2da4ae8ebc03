"""The ledger in an SQLite file, as the kernel asks for it; one thread does all the work."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from plancha.ledger import Closed, Counts, Opened
from plancha.record import Record
from plancha_ledger.sqlite_file import SqliteFile

P = ParamSpec("P")
T = TypeVar("T")


class SqliteLedger:
    """A `plancha.ledger.Ledger`. A caller that is cancelled leaves its write to come to its end."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")

    async def open(self) -> None:
        """Before anything else. Raises `LoadError`."""
        await self._call(self._file.open)

    async def write(
        self, opened: Sequence[Opened], counts: Sequence[Counts], closed: Sequence[Closed]
    ) -> None:
        """As the protocol says; one transaction, one `fsync`."""
        await self._call(self._file.write, opened, counts, closed)

    async def find(self, request: str) -> Record | None:
        """As the protocol says; waits for the write that runs."""
        return await self._call(self._file.find, request)

    async def close(self) -> None:
        """As the protocol says, after what was asked before."""
        await self._call(self._file.close)
        self._thread.shutdown(wait=False)

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.wrap_future(self._thread.submit(function, *args, **kwargs))
