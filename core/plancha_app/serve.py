"""A server's life: doors first, then the model, then requests, until somebody says stop."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import attrs
import structlog
from anyio.abc import TaskStatus

from plancha.contracts import LoadError, Text
from plancha.failure import Failure
from plancha.gateway import Gateway, Transport
from plancha.kernel import Kernel, Worker
from plancha.options import OptionsError
from plancha.plugins import PluginError
from plancha_app.assembly import BUILT_IN, make, make_site
from plancha_app.deployment import Deployment, DeploymentError
from plancha_app.logs import configure, hidden, set_level
from plancha_app.model import open_model
from plancha_app.progress import fetching, loading
from plancha_app.reloading import changed_keys, reloaded
from plancha_engine.report import Report

log = structlog.get_logger()

OpenModel = Callable[[str, Report], tuple[Path, Text]]
"""From a model as the deployment names it to its checkpoint and its text."""

SHUTTING_DOWN = Failure("unavailable", "The server is shutting down.", None, "draining")


@attrs.define(kw_only=True, eq=False)
class Server:
    """One process: gateway, transports and kernel of one deployment."""

    deployment: Deployment
    path: Path | None = None  # of the deployment's file, to read again; None: as at the start
    open_model: OpenModel
    say: Callable[[str], None]  # what the operator must see, whatever the log level
    gateway: Gateway = attrs.field(init=False)
    loading: bool = attrs.field(default=False, init=False)  # the executor's thread is at it
    addresses: list[str] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        model = self.deployment.model
        access = self.deployment.access
        self.gateway = Gateway(model.public_name, model.public_prefixes, access)

    async def run(self) -> int:
        """Serve until SIGINT or SIGTERM. The exit code: 0, or 1 when it could not serve."""
        code = 0
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._stop_on_signal, tasks.cancel_scope)
                await tasks.start(self._reload_on_signal)
                await self._open_doors(tasks)
                kernel, text = await self._load()
                self._greet()
                await kernel.run(text)
        except* (LoadError, OptionsError, PluginError) as group:
            for error in _leaves(group):
                self.say(f"plancha: {error}")
            code = 1
        return code

    async def _open_doors(self, tasks: anyio.abc.TaskGroup) -> None:
        site = make_site(self.deployment, model=self.deployment.model.name, vocabulary=0)
        for name, table in self.deployment.transport.items():
            section = f"transport.{name}"
            transport = make(section, table, site)
            self.addresses.append(await tasks.start(self._listen, section, transport))

    async def _listen(
        self,
        section: str,
        transport: Transport,
        *,
        task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            await transport.run(self.gateway, task_status.started)
        except OSError as error:
            raise LoadError(f"{section} cannot listen: {error}") from error

    async def _load(self) -> tuple[Kernel, Text]:
        deployment = self.deployment
        self.loading = True
        try:
            path, text = await anyio.to_thread.run_sync(
                self.open_model, deployment.model.name, fetching(), abandon_on_cancel=True
            )
            site = make_site(
                deployment,
                model=str(path),
                vocabulary=text.vocabulary,
                plain_bytes=text.plain_bytes,
            )
            worker = Worker(
                site=site,
                executor=make("executor", deployment.executor, site),
                make_scheduler=partial(make, "scheduler", deployment.scheduler),
                make_allocator=partial(make, "allocator", deployment.allocator),
            )
            with loading() as report:
                await worker.load(report)
        except Exception:
            self.loading = False
            self.gateway.refuse("failed", "the model could not be loaded")
            raise
        self.loading = False
        return Kernel(worker=worker, gateway=self.gateway), text

    def _greet(self) -> None:
        self.say(f"{self.gateway.model} is served at {' and '.join(self.addresses)}")
        http = next((each for each in self.addresses if each.startswith("http")), None)
        if http is not None:
            self.say(
                f"try: curl -N {http}/generate -H 'Content-Type: application/json' "
                """-d '{"prompt": "Once upon a time"}'"""
            )

    async def _stop_on_signal(
        self,
        scope: anyio.CancelScope,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            await anext(signals)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._drain, tasks.cancel_scope)
                await anext(signals)  # told twice: no patience left
                tasks.cancel_scope.cancel()
        if self.gateway.running:
            log.warning("ending_streams", running=self.gateway.running)
        self.gateway.fail_all(SHUTTING_DOWN)
        scope.cancel()  # the transports let their clients read that

    async def _reload_on_signal(
        self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        with anyio.open_signal_receiver(signal.SIGHUP) as signals:
            task_status.started()
            async for _ in signals:
                await self._reload()

    async def _reload(self) -> None:
        """All of the file takes effect, or nothing; streams notice neither."""
        try:
            deployment, reload = reloaded(self.deployment, self.path)
        except DeploymentError as error:
            log.error("reload_refused", source=error.source, problems=error.problems)
            return
        except Exception:  # a plugin's, say: no reason to end what runs
            log.exception("reload_failed")
            return
        log.info("reloaded", changed=changed_keys(self.deployment, deployment))
        self.deployment = deployment
        set_level(deployment.server.log_level)
        await self.gateway.reload(deployment.access, reload)

    async def _drain(self, scope: anyio.CancelScope) -> None:
        """Let what runs finish, for as long as the deployment allows."""
        timeout_s = self.deployment.server.drain_timeout_s
        self.gateway.refuse("draining", "it is shutting down")
        self.gateway.fail_queued(SHUTTING_DOWN)
        log.info("draining", running=self.gateway.running, timeout_s=timeout_s)
        with anyio.move_on_after(timeout_s):
            await self._idle()
        scope.cancel()

    async def _idle(self) -> None:
        while self.gateway.running:  # noqa: ASYNC110  (once per process: not worth an event)
            await anyio.sleep(0.02)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found


def serve_until_told(source: str, deployment: Deployment) -> tuple[int, bool]:
    """Run a server of the deployment. Its exit code, and whether a load was left running."""
    configure(deployment.server.log_level, deployment.server.log_format)
    log.info("deployment", source=source, **hidden(attrs.asdict(deployment)))
    server = Server(
        deployment=deployment,
        path=None if source == BUILT_IN else Path(source),
        open_model=open_model,
        say=partial(print, flush=True),
    )
    try:
        return anyio.run(server.run), server.loading
    except Exception:
        log.exception("server_failed")
        return 1, server.loading
