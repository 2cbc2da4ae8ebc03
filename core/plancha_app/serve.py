"""A server's life: doors first, then the model, then requests, until somebody says stop."""

import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import attrs
import structlog
from anyio.abc import TaskGroup

from plancha.contracts import Text
from plancha.gateway import Gateway
from plancha.kernel import Kernel
from plancha.ledger import Ledger
from plancha.startup import Stage
from plancha_app.assembly import BUILT_IN, make_gateway, make_texts
from plancha_app.crash_output import keep_content_out
from plancha_app.deployment import Deployment
from plancha_app.doors import open_doors
from plancha_app.draining import drain, end_streams
from plancha_app.ledgers import ledger_of
from plancha_app.loading import OpenModel, load
from plancha_app.logs import configure, hidden
from plancha_app.model import open_model
from plancha_app.parent import Parent
from plancha_app.reloading import reread
from plancha_app.telling import START_ERRORS, Say, greet, reasons
from plancha_app.terminal import Terminal
from plancha_app.tracing import traced
from plancha_texts.keeper import TextKeeper, at_work

log = structlog.get_logger()

Signals = AsyncIterator[signal.Signals]


@attrs.define(kw_only=True, eq=False)
class Server:
    """One process: gateway, transports and kernel of one deployment."""

    deployment: Deployment
    path: Path | None = None  # of the deployment's file, to read again; None: as at the start
    open_model: OpenModel
    say: Say
    texts: TextKeeper | None = attrs.field(init=False)
    gateway: Gateway = attrs.field(init=False)
    addresses: list[str] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.texts = make_texts(self.deployment)
        self.gateway = make_gateway(self.deployment, self.texts)

    async def run(self) -> int:
        """Serve until SIGINT or SIGTERM. The exit code: 0, or 1 when it could not serve."""
        code = 0
        terminal = Terminal()
        with (  # to the very end: a signal that comes meanwhile must not cut it short
            anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as stops,
            anyio.open_signal_receiver(signal.SIGHUP) as hang_ups,
        ):
            try:
                tracing = traced(self.gateway, self.deployment.tracing)
                async with tracing, at_work(self.texts), anyio.create_task_group() as tasks:
                    tasks.start_soon(self._stop_on_signal, stops, tasks.cancel_scope)
                    tasks.start_soon(self._reload_on_signal, hang_ups, terminal)
                    await self._serve(tasks)
            except* START_ERRORS as group:
                for reason in reasons(group):
                    self.say(f"plancha: {reason}")
                code = 1
        return code

    async def _serve(self, tasks: TaskGroup) -> None:
        self.addresses = await open_doors(tasks, self.deployment, self.gateway)
        async with ledger_of(self.deployment) as ledger:
            kernel, text = await self._load(ledger)
            needs_key = self.gateway.access.anonymous is None
            greet(self.say, self.gateway.model, self.addresses, needs_key=needs_key)
            await kernel.run(text)

    async def _load(self, ledger: Ledger) -> tuple[Kernel, Text]:
        try:
            worker, text = await load(self.deployment, ledger, self.open_model, self._begins)
        except Exception:
            self.gateway.refuse("failed", "the model could not be loaded")
            raise
        return Kernel(worker=worker, gateway=self.gateway), text

    def _begins(self, stage: Stage) -> None:
        self.gateway.stage = stage

    async def _stop_on_signal(self, signals: Signals, scope: anyio.CancelScope) -> None:
        await anext(signals)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._drain, tasks.cancel_scope)
            await anext(signals)  # told twice: no patience left
            tasks.cancel_scope.cancel()
        end_streams(self.gateway)
        scope.cancel()

    async def _reload_on_signal(self, signals: Signals, terminal: Terminal) -> None:
        async for _ in signals:
            if terminal.hung_up():
                signal.raise_signal(signal.SIGTERM)
            else:
                await self._reload()

    async def _reload(self) -> None:
        """All of the file takes effect, or nothing; streams notice neither."""
        found = reread(self.deployment, self.path)
        if found is not None:
            self.deployment, reload = found
            if self.texts is not None:
                self.texts.retain(self.deployment.retention)
            await self.gateway.reload(self.deployment.access, reload)

    async def _drain(self, scope: anyio.CancelScope) -> None:
        await drain(self.gateway, self.deployment.server.drain_timeout_s)
        scope.cancel()


def serve_until_told(source: str, deployment: Deployment) -> int:
    """Run a server of the deployment. Its exit code; a load or a step may be left running."""
    keep_content_out()
    several = deployment.server.gateways > 0
    configure(
        deployment.server.log_level, deployment.server.log_format, "parent" if several else None
    )
    log.info("deployment", source=source, **hidden(attrs.asdict(deployment)))
    path = None if source == BUILT_IN else Path(source)
    say = partial(print, flush=True)
    server: Server | Parent = (
        Parent(deployment=deployment, path=path, say=say)
        if several
        else Server(deployment=deployment, path=path, open_model=open_model, say=say)
    )
    code = 1
    try:
        code = anyio.run(server.run)
    except Exception:
        log.exception("server_failed")
    return code
