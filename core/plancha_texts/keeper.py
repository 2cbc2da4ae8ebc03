"""Keeps what tenants' settings let it, on a thread of its own, and deletes what is overdue."""

import asyncio
import math
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import anyio
import attrs
import orjson
import structlog

from plancha.contracts import LoadError
from plancha.texts import Exchange, Kept, unreadable
from plancha_texts.hashing import Secrets, keyed_hash
from plancha_texts.losses import Losses
from plancha_texts.retention import Policy
from plancha_texts.store import Row, Store, said_as_bytes

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")

MOST_WAITING_TOKENS = 4_000_000
"""Of what is not written yet: some 16 MB of text, as much as the disk may be behind."""

TOKENS_EACH = 100  # that a request counts as beside its own
SWEEP_EVERY_S = 600.0
TRY_AGAIN_S = 5.0  # while something keeps the traces from being removed
CLOSING_S = 10.0
GOING = "the server is going"

UNUSABLE = (sqlite3.Error, OSError, LoadError)
"""What the file, or a tenant's secret, may be the reason for."""


@attrs.define
class Amount:
    """Of requests, and of their tokens."""

    requests: int = 0
    tokens: int = 0

    def add(self, tokens: int) -> None:
        """One more request."""
        self.requests += 1
        self.tokens += tokens


@attrs.define(eq=False)
class TextKeeper:
    """`plancha.texts.Texts` in one file, which several processes may share.

    What cannot be kept is counted and said in the log: nothing waits for it.
    """

    path: Path
    secrets: Secrets | None  # None: nobody's setting is "hash"
    policy: Policy
    wall: Callable[[], float] = time.time  # Unix seconds
    losses: Losses = attrs.field(factory=Losses)
    _pool: ThreadPoolExecutor = attrs.field(init=False)
    _store: Store | None = None
    _given: Amount = attrs.field(factory=Amount)  # counted by the event loop
    _done: Amount = attrs.field(factory=Amount)  # and by the thread
    _due: anyio.Event = attrs.field(factory=anyio.Event)

    def __attrs_post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="texts")

    def open(self) -> None:
        """See whether the file can be used; it is made only if somebody's setting needs it.

        Raises `LoadError`. Without this the file is opened when it is needed first.
        """
        if not self.path.exists() and not self.policy.keeps_anything:
            return
        try:
            self._open()
            for tenant, setting in self.policy.settings.items():
                if setting == "hash" and self.secrets is not None:
                    self.secrets.of(tenant)
        except sqlite3.Error as error:
            raise LoadError(f"{self.path}: cannot be used for texts: {error}") from None
        except OSError as error:
            name = error.filename or self.path
            raise LoadError(f"{name}: cannot be used for texts: {error.strerror}") from None

    def retain(self, policy: Policy) -> None:
        """From now on this holds, also for what is kept already."""
        self.policy = policy
        self._due.set()

    def keeps(self, tenant: str) -> bool:
        """See `Texts`."""
        return self.policy.of(tenant) != "none"

    def keep(self, exchange: Exchange) -> None:
        """See `Texts`."""
        if not self.keeps(exchange.tenant):
            return
        weight = exchange.tokens + TOKENS_EACH
        if self._given.tokens - self._done.tokens + weight > MOST_WAITING_TOKENS:
            self.losses.add("the file is too slow")
            return
        try:
            self._pool.submit(self._write, exchange, weight)
        except RuntimeError:  # closed
            self.losses.add(GOING)
        else:
            self._given.add(weight)

    async def find(self, request: str) -> Kept | None:
        """See `Texts`. Comes after everything that was to be kept before."""
        row = await self._read(self._find, request)
        return None if row is None else self._shown(row)

    async def delete(self, request: str) -> bool:
        """See `Texts`. The traces go with it, unless another process holds them for a while."""
        found, clean = await self._read(self._delete, request)
        if not clean:
            self._due.set()  # a sweep tries again until they are gone
        return found

    async def sweeping(self) -> None:
        """Task: delete what is overdue, now, whenever the settings change, and now and then."""
        while True:
            self._due = anyio.Event()
            clean = await self._sweep()
            with anyio.move_on_after(SWEEP_EVERY_S if clean else TRY_AGAIN_S):
                await self._due.wait()

    def close(self) -> None:
        """Write what waits, for a while at most, and close the file. Blocks the caller."""
        last = self._pool.submit(self._close)
        self._pool.shutdown(wait=False)
        wait([last], CLOSING_S)
        for _ in range(self._given.requests - self._done.requests):
            self.losses.add(GOING)
        self.losses.tell()

    async def _sweep(self) -> bool:
        """Whether all that is overdue is gone, traces and all."""
        try:
            if not await self._call(self._is_there):
                return True
            for tenant in await self._call(self._tenants):
                while await self._call(self._delete_overdue, tenant):
                    pass
            clean = await self._call(self._scrub)
        except UNUSABLE as error:
            log.warning("texts_not_swept", path=str(self.path), reason=_reason(error))
            return False
        if not clean:
            log.warning("texts_traces_left", path=str(self.path))
        return clean

    async def _read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self._call(function, *args, **kwargs)
        except UNUSABLE as error:
            log.error("texts_unreadable", path=str(self.path), reason=_reason(error))
            raise unreadable() from None

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))

    # From here on everything runs on the thread.

    def _open(self) -> Store:
        if self._store is None:
            self._store = Store(self.path)
        return self._store

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _is_there(self) -> bool:
        return self._store is not None or self.path.exists()

    def _write(self, exchange: Exchange, weight: int) -> None:
        try:
            row = self._row(exchange)
            if row is not None:
                self._open().write(row)
        except Exception as error:  # whatever it is, only this one is not kept
            self.losses.add(_reason(error))
        finally:
            self._done.add(weight)

    def _row(self, exchange: Exchange) -> Row | None:
        """By the setting as it is when it is written."""
        setting = self.policy.of(exchange.tenant)
        said: tuple[object, object, object]
        if setting == "none":
            return None
        said = exchange.prompts, exchange.messages, exchange.outputs
        if setting == "hash":
            if self.secrets is None:
                raise LoadError("there is no folder for secrets")
            secret = self.secrets.of(exchange.tenant)
            chat = None if exchange.messages is None else keyed_hash(secret, exchange.messages)
            said = (
                [keyed_hash(secret, prompt) for prompt in exchange.prompts],
                chat,
                [keyed_hash(secret, output) for output in exchange.outputs],
            )
        return Row(
            request=exchange.request,
            tenant=exchange.tenant,
            model=exchange.model,
            created=exchange.created,
            hashed=setting == "hash",
            said=said_as_bytes(*said),
        )

    def _find(self, request: str) -> Row | None:
        """Nothing that is overdue, though it may be there until the next sweep."""
        known = request.isascii() and self._is_there()
        row = self._open().find(request) if known else None
        if row is None or row.created < self.policy.kept_from(row.tenant, self.wall()):
            return None
        if self.policy.of(row.tenant) == "hash" and not row.hashed:
            return None
        return row

    def _delete(self, request: str) -> tuple[bool, bool]:
        """Whether it was there, and whether its traces are gone."""
        if not self._is_there():
            return False, True
        found = self._open().delete(request)
        clean = not found or self._scrub()
        if not clean:
            log.warning("texts_traces_left", path=str(self.path))
        return found, clean

    def _tenants(self) -> list[str]:
        return self._open().tenants()

    def _delete_overdue(self, tenant: str) -> bool:
        return self._open().delete_overdue(tenant, self.policy, self.wall())

    def _scrub(self) -> bool:
        return self._open().scrub()

    def _shown(self, row: Row) -> Kept:
        said = orjson.loads(row.said)
        until = self.policy.kept_until(row.tenant, row.created)
        return Kept(
            request=row.request,
            tenant=row.tenant,
            model=row.model,
            created=row.created,
            until=None if until is None else math.ceil(until),
            hashed=row.hashed,
            prompts=tuple(said["prompts"]),
            messages=said["messages"],
            outputs=tuple(said["outputs"]),
        )


@asynccontextmanager
async def at_work(keeper: TextKeeper | None) -> AsyncIterator[None]:
    """As long as it is open, what is overdue is deleted; at its end what waits is written.

    Raises `LoadError` as `TextKeeper.open` does. None: there is nothing to do.
    """
    if keeper is None:
        yield
        return
    keeper.open()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keeper.sweeping)
            yield
            tasks.cancel_scope.cancel()
    finally:
        keeper.close()


def _reason(error: Exception) -> str:
    """What went wrong, with nothing of what was to be written."""
    if isinstance(error, LoadError):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return getattr(error, "sqlite_errorname", type(error).__name__)
