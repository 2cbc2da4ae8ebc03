"""A child process as its parent sees it: started, spoken to, and started again when it dies."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import anyio
import anyio.abc
import attrs
import structlog

from plancha.contracts import LoadError
from plancha.links.link import LinkLost
from plancha.links.message_stream import READ_BYTES, MessageStream
from plancha.links.wire import Wire
from plancha_app.words import WORDS, Drain, Failed, FromChild, Serving, Setup, Update

log = structlog.get_logger()

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
"""Between a death and the next start: twice as long each time, until one has lived a while."""

LIVED_S = 60.0
PARTING_S = 5.0
"""What a child has to end by itself once its socket is closed."""


@attrs.define(kw_only=True, eq=False)
class Child:
    """One place for a process, whichever process has it now."""

    name: str
    module: str  # run by `python -m`
    setup: Callable[[], Setup]  # as it is to be now
    heard: Callable[["Child", FromChild], None]
    served: bool = False  # at least once
    gone: anyio.Event = attrs.field(factory=anyio.Event)  # and will not be started again
    _ending: anyio.Event = attrs.field(factory=anyio.Event)
    _words: MessageStream | None = None
    _reason: str | None = None

    async def keep(self) -> None:
        """Task: keep a process alive until told to end.

        Raises `LoadError` with its reason when the first one never served.
        """
        pause_s = FIRST_PAUSE_S
        try:
            while not self._ending.is_set():
                began = time.monotonic()
                code = await self._live()
                if self._ending.is_set():
                    return
                log.warning("process_died", which=self.name, code=code, reason=self._reason)
                if self._reason is not None and not self.served:
                    raise LoadError(self._reason)
                if time.monotonic() - began > LIVED_S:
                    pause_s = FIRST_PAUSE_S
                with anyio.move_on_after(pause_s):
                    await self._ending.wait()
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        finally:
            self.gone.set()

    def update(self, update: Update) -> None:
        """Tell the process that is there; a later one gets it with its setup."""
        self._say(update)

    def drain(self) -> None:
        """Let it end when it has nothing to do any more, and start no other."""
        self._ending.set()
        self._say(Drain())

    def stop(self) -> None:
        """Let it end at once, and start no other."""
        self._ending.set()
        if self._words is not None:
            self._words.close()

    def _say(self, word: Update | Drain) -> None:
        if self._words is not None:
            self._words.push(word)

    async def _live(self) -> int | None:
        """From a process's start to its end. Its exit code; None: it could not be started."""
        try:
            process, words = await self._start()
        except OSError as error:  # no memory, say, or too many processes: that passes
            self._reason = f"{self.name} could not be started: {error.strerror}"
            return None
        self._words, self._reason = words, None
        try:
            setup = self.setup()
            log.info("process_started", which=self.name, pid=process.pid, link=setup.link)
            if self._ending.is_set():  # told so while it was started, and so has nothing to finish
                return None
            words.push(setup)
            await self._listen(words)
        finally:
            self._words = None
            words.close()
            with anyio.CancelScope(shield=True):
                await _end(process)
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

    async def _listen(self, words: MessageStream) -> None:
        try:
            while True:
                word = await words.receive()
                if isinstance(word, Failed):
                    self._reason = word.reason
                self.served = self.served or isinstance(word, Serving)
                self.heard(self, word)
        except LinkLost:
            return


async def _end(process: anyio.abc.Process) -> None:
    with anyio.move_on_after(PARTING_S):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    await process.aclose()
