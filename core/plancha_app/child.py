"""A child process as its parent sees it: started, spoken to, and started again when it dies."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import anyio
import anyio.abc
import attrs
import structlog

from plancha.contracts import LoadError
from plancha.links.link import LinkLost
from plancha.links.message_stream import READ_BYTES, MessageStream
from plancha.links.wire import Wire
from plancha_app.child_process import TELL_STACKS
from plancha_app.hang_watch import HangWatch, interval_s
from plancha_app.restarts import Restarts
from plancha_app.telling import ending
from plancha_app.words import WORDS, Drain, Failed, FromChild, Serving, Setup, ToChild, Update

log = structlog.get_logger()

PARTING_S = 5.0
HUNG_PARTING_S = 1.0
"""What a child has to end by itself once its socket is closed; one that hangs hardly ever can."""


@attrs.define(kw_only=True, eq=False)
class Child:
    """One place for a process, whichever process has it now."""

    name: str
    module: str  # run by `python -m`
    setup: Callable[[], Setup]  # as it is to be now
    heard: Callable[["Child", FromChild], None]
    hang_timeout_s: float = 0.0  # for which it may say nothing; 0: for ever
    parting_s: float = PARTING_S  # to end by itself once its socket is closed
    gone: anyio.Event = attrs.field(factory=anyio.Event)  # and will not be started again
    restarts: Restarts = attrs.field(factory=Restarts)
    starts: int = 0  # of processes in this place
    _ending: anyio.Event = attrs.field(factory=anyio.Event)
    _words: MessageStream | None = None
    _reason: str | None = None  # the operator's to put right
    _hung: bool = False

    @property
    def served(self) -> bool:
        """Whether a process in this place has done its work at least once."""
        return self.restarts.ever_ready

    async def keep(self) -> None:
        """Task: keep a process alive until told to end.

        Raises `LoadError` with the reason when the first one never served, or none of a few did.
        """
        try:
            while not self._ending.is_set():
                code = await self._live()
                if self._ending.is_set():
                    return
                log.warning(
                    "process_died", which=self.name, code=code, hung=self._hung, reason=self._reason
                )
                pause_s = self.restarts.ended(time.monotonic())
                if not self.served and (self._reason is not None or pause_s is None):
                    raise LoadError(self._reason or self._given_up(code))
                with anyio.move_on_after(pause_s):
                    await self._ending.wait()
        finally:
            self.gone.set()

    def _given_up(self, code: int | None) -> str:
        how = f"said nothing for {self.hang_timeout_s:g} s" if self._hung else ending(code)
        return (
            f"The process {self.name} ended {self.restarts.tries} times before it was ready; "
            f"the last one {how}."
        )

    def update(self, update: Update) -> None:
        """Tell the process that is there; a later one gets it with its setup."""
        self.tell(update)

    def drain(self) -> None:
        """Let it end when it has nothing to do any more, and start no other."""
        self._ending.set()
        self.tell(Drain())

    def stop(self) -> None:
        """Let it end at once, and start no other."""
        self._ending.set()
        if self._words is not None:
            self._words.close()

    def tell(self, word: ToChild) -> None:
        """Say something to the process that is there, if there is one. Never waits."""
        if self._words is not None:
            self._words.push(word)

    async def _live(self) -> int | None:
        """From a process's start to its end. Its exit code; None: it could not be started."""
        self._reason, self._hung = None, False
        try:
            process, words = await self._start()
        except OSError as error:  # no memory, say, or too many processes: that passes
            self._reason = f"{self.name} could not be started: {error.strerror}"
            return None
        self._words = words
        self.starts += 1
        try:
            setup = self.setup()
            log.info("process_started", which=self.name, pid=process.pid, link=setup.link)
            if self._ending.is_set():  # told so while it was started, and so has nothing to finish
                return None
            words.push(setup)
            await self._attend(process, words)
        finally:
            self._words = None
            words.close()
            with anyio.CancelScope(shield=True):
                await _end(process, HUNG_PARTING_S if self._hung else self.parting_s)
        return process.returncode

    async def _start(self) -> tuple[anyio.abc.Process, MessageStream]:
        """A new process, and the words to and from it."""
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=READ_BYTES)
            words = MessageStream(reader, writer, Wire(*WORDS), most_waiting=READ_BYTES)
            try:
                process = await anyio.open_process(
                    [sys.executable, "-P", "-m", self.module, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=None,
                    stderr=None,
                    start_new_session=True,  # a terminal's Ctrl-C is for the parent to pass on
                    pass_fds=[theirs.fileno()],
                )
            except BaseException:
                words.close()
                raise
        return process, words

    async def _attend(self, process: anyio.abc.Process, words: MessageStream) -> None:
        """Until it has said its last, or hangs."""
        watch = HangWatch(self.hang_timeout_s) if self.hang_timeout_s else None
        async with anyio.create_task_group() as tasks:
            if watch is not None:
                tasks.start_soon(self._watch, watch, process, tasks.cancel_scope)
            await self._listen(words, watch)
            tasks.cancel_scope.cancel()

    async def _listen(self, words: MessageStream, watch: HangWatch | None) -> None:
        try:
            while True:
                word = await words.receive()
                if watch is not None:
                    watch.heard()
                if isinstance(word, Failed):
                    self._reason = word.reason
                elif isinstance(word, Serving):
                    self.restarts.ready(time.monotonic())
                self.heard(self, word)
        except LinkLost:
            return

    async def _watch(
        self, watch: HangWatch, process: anyio.abc.Process, scope: anyio.CancelScope
    ) -> None:
        while True:
            await anyio.sleep(interval_s(self.hang_timeout_s))
            if watch.look():
                break
        self._hung = True
        log.error("process_hangs", which=self.name, pid=process.pid, limit_s=self.hang_timeout_s)
        with suppress(ProcessLookupError):
            process.send_signal(TELL_STACKS)
        scope.cancel()


async def _end(process: anyio.abc.Process, parting_s: float) -> None:
    with anyio.move_on_after(parting_s):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    await process.aclose()
