"""The parent of one worker process and several gateway processes, which share a port.

It serves nobody itself: it starts them, passes on signals, and starts a dead one again.
"""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import attrs
import structlog
from anyio.abc import TaskGroup

from plancha.accounting.accounting import LAST_WRITES_S
from plancha.contracts import LoadError
from plancha.startup import STARTING, Stage
from plancha_app.child import PARTING_S, Child
from plancha_app.deployment import Deployment
from plancha_app.gateway_figures import GatewayFigures
from plancha_app.ports import hold_ports
from plancha_app.reloading import reread
from plancha_app.telling import START_ERRORS, Say, greet, reasons
from plancha_app.terminal import Terminal
from plancha_app.words import (
    Collect,
    FromChild,
    Listening,
    Loading,
    Rendered,
    Setup,
    Update,
    written,
)

log = structlog.get_logger()

WORKER = "plancha_app.worker_process"
GATEWAY = "plancha_app.gateway_process"

MOST_PATH_BYTES = 103
"""Of a Unix socket's address on macOS, the shortest of all systems' limits."""

KILL_AFTER_S = 10.0
"""Beyond the drain's time: a gateway that has not ended by then never will."""


@attrs.define(kw_only=True, eq=False)
class Parent:
    """The processes of one deployment."""

    deployment: Deployment
    path: Path | None = None  # of the deployment's file, to read again; None: as at the start
    say: Say
    _shared: Deployment = attrs.field(init=False)  # with the ports that gateways share
    _link: str = attrs.field(init=False)
    _worker: Child = attrs.field(init=False)
    _gateways: list[Child] = attrs.field(init=False, factory=list)
    _figures: GatewayFigures = attrs.field(init=False)
    _tasks: TaskGroup = attrs.field(init=False)
    _stage: Stage = attrs.field(init=False, default=STARTING)  # the worker's
    _addresses: tuple[str, ...] = attrs.field(init=False, default=())
    _greeted: bool = attrs.field(init=False, default=False)

    async def run(self) -> int:
        """Serve until SIGINT or SIGTERM. The exit code: 0, or 1 when it could not serve."""
        code = 0
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        terminal = Terminal()
        # To the very end: a signal that comes meanwhile must not leave half of it behind.
        with anyio.open_signal_receiver(*numbers) as signals, ExitStack() as held:
            try:
                self._shared = hold_ports(self.deployment, held)
                self._link = make_link_path(held)
                await self._run(signals, terminal)
            except* START_ERRORS as group:
                for reason in reasons(group):
                    self.say(f"plancha: {reason}")
                code = 1
        return code

    async def _run(self, signals: AsyncIterator[signal.Signals], terminal: Terminal) -> None:
        keeps_records = self.deployment.ledger is not None
        parting_s = PARTING_S + LAST_WRITES_S if keeps_records else PARTING_S
        self._worker = self._child("worker", WORKER, parting_s)
        numbers = range(1, self.deployment.server.gateways + 1)
        self._gateways = [self._child(f"gateway-{number}", GATEWAY) for number in numbers]
        self._figures = GatewayFigures(self._worker, self._gateways)
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._obey_signals, signals, terminal)
            for child in (self._worker, *self._gateways):
                tasks.start_soon(child.keep)

    def _child(self, name: str, module: str, parting_s: float = PARTING_S) -> Child:
        def setup() -> Setup:
            return Setup(written(self._shared), self._link, name)

        return Child(
            name=name,
            module=module,
            setup=setup,
            heard=self._heard,
            hang_timeout_s=self.deployment.server.hang_timeout_s,
            parting_s=parting_s,
        )

    def _heard(self, child: Child, word: FromChild) -> None:
        match word:
            case Listening(addresses):
                self._addresses = addresses
                child.tell(Loading(self._stage))
            case Loading(stage):
                self._stage = stage
                for gateway in self._gateways:
                    gateway.tell(word)
            case Collect():
                self._tasks.start_soon(self._figures.answer, child, word)
            case Rendered():
                self._figures.rendered(child, word)
        if not self._greeted and all(gateway.served for gateway in self._gateways):
            self._greeted = True
            model, needs_key = self.deployment.model, self.deployment.access.anonymous is None
            greet(self.say, model.public_name, self._addresses, needs_key=needs_key)

    async def _obey_signals(
        self, signals: AsyncIterator[signal.Signals], terminal: Terminal
    ) -> None:
        draining = False
        async for number in signals:
            if number == signal.SIGHUP and not terminal.hung_up():
                self._reload()
            elif not draining:
                draining = True
                self._tasks.start_soon(self._drain)
            else:  # told twice: no patience left
                for gateway in self._gateways:
                    gateway.stop()

    async def _drain(self) -> None:
        """Gateways first; the worker goes on for them until the last has gone."""
        for gateway in self._gateways:
            gateway.drain()
        with anyio.move_on_after(self.deployment.server.drain_timeout_s + KILL_AFTER_S):
            for gateway in self._gateways:
                await gateway.gone.wait()
        self._tasks.cancel_scope.cancel()

    def _reload(self) -> None:
        """All of the file takes effect in every process, or nothing in any."""
        found = reread(self.deployment, self.path)
        if found is not None:
            self.deployment, _ = found
            self._shared = attrs.evolve(self.deployment, transport=self._shared.transport)
            for child in (self._worker, *self._gateways):
                child.update(Update(written(self._shared)))


def make_link_path(held: ExitStack) -> str:
    """Where the worker is to listen: in a folder for this user alone, as long as `held` is open.

    Raises `LoadError` when there can be no such folder.
    """
    try:
        folder = held.enter_context(TemporaryDirectory(prefix="plancha-"))
    except OSError as error:
        raise LoadError(
            f"Cannot make a temporary folder: {error.strerror}. Let TMPDIR name a folder that can "
            "be written to."
        ) from error
    path = str(Path(folder) / "worker")
    size = len(os.fsencode(path))
    if size > MOST_PATH_BYTES:
        raise LoadError(
            f"The socket {path} would have a path of {size} bytes; {MOST_PATH_BYTES} are allowed. "
            "Let TMPDIR name a folder with a shorter path."
        )
    return path
