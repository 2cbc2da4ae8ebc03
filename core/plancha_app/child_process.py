"""What every child process does: hear from its parent what to do, and never outlive it."""

import asyncio
import ctypes
import faulthandler
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

import anyio
import structlog

from plancha.links.link import LinkLost
from plancha.links.message_stream import READ_BYTES, MessageStream
from plancha.links.wire import Wire
from plancha_app.crash_output import keep_content_out
from plancha_app.deployment import Deployment
from plancha_app.hang_watch import interval_s
from plancha_app.logs import configure
from plancha_app.telling import START_ERRORS, reasons
from plancha_app.words import WORDS, Alive, Failed, Setup, read

log = structlog.get_logger()

Work = Callable[[MessageStream, Deployment, str], Awaitable[None]]
"""Given the words to and from the parent, the deployment and the link's path; until done."""

PR_SET_PDEATHSIG = 1
STDERR = 2

TELL_STACKS = signal.SIGUSR1
"""On this, every thread's stack goes to stderr, even if no thread does anything else any more."""


def run(work: Work) -> NoReturn:
    """The whole life of a child process, whose only argument is the socket to its parent.

    Signals are the parent's to understand: a service manager may send one to every process, and a
    worker must not go before its gateways have drained.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    keep_content_out()
    faulthandler.enable(file=STDERR)  # a crash in a library tells where
    faulthandler.register(TELL_STACKS, file=STDERR)
    code = 1
    try:
        code = anyio.run(_run, socket.socket(fileno=int(sys.argv[1])), work)
    except Exception:
        log.exception("process_failed")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the executor's thread cannot be interrupted and would be waited for


def die_with_parent() -> None:
    """Linux: be killed when the parent dies, even while no task can notice it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


async def _run(line: socket.socket, work: Work) -> int:
    reader, writer = await asyncio.open_unix_connection(sock=line, limit=READ_BYTES)
    parent = MessageStream(reader, writer, Wire(*WORDS), most_waiting=READ_BYTES)
    code = 0
    try:
        setup = await parent.receive()
        assert isinstance(setup, Setup)
        deployment = read(setup.deployment)
        server = deployment.server
        configure(server.log_level, server.log_format, setup.process)
        async with anyio.create_task_group() as tasks:
            if server.hang_timeout_s:
                tasks.start_soon(_give_signs_of_life, parent, interval_s(server.hang_timeout_s))
            await work(parent, deployment, setup.link)
            tasks.cancel_scope.cancel()
    except* LinkLost:  # it had gone before it said anything
        pass
    except* START_ERRORS as group:
        parent.push(Failed("; ".join(reasons(group))))
        code = 1
    parent.close()
    return code


async def _give_signs_of_life(parent: MessageStream, interval_s: float) -> None:
    while True:
        if not parent.waiting_bytes:  # else it has enough to hear
            parent.push(Alive())
        await anyio.sleep(interval_s)
