"""`python -m plancha_app.gateway_process`: doors and text, as a child of `plancha serve`.

Whether there is a worker or not, its doors are open; it looks for one all the time. Needs no torch.
"""

import os
from pathlib import Path
from shutil import rmtree

import anyio
import anyio.to_thread
import structlog

from plancha.contracts import Text
from plancha.gateway import Gateway
from plancha.kernel import attend
from plancha.links.link import LinkLost
from plancha.links.message_stream import MessageStream
from plancha.links.socket_link import SocketLink, connect
from plancha_app.assembly import make_gateway, make_reload, make_texts
from plancha_app.child_process import run
from plancha_app.deployment import Deployment
from plancha_app.doors import open_doors
from plancha_app.draining import drain, end_streams
from plancha_app.figures_of_all import FiguresOfAll
from plancha_app.logs import set_level
from plancha_app.tracing import traced
from plancha_app.words import Collected, Drain, Listening, Loading, Render, Serving, Update, read
from plancha_text.text import from_path
from plancha_texts.keeper import TextKeeper, at_work

log = structlog.get_logger()

RETRY_S = 0.1
"""Between two looks for a worker."""


async def work(parent: MessageStream, deployment: Deployment, link: str) -> None:
    """Serve clients until the parent says to drain, or has gone."""
    parent_pid = os.getppid()
    texts = make_texts(deployment)
    gateway = make_gateway(deployment, texts)
    await gateway.reload(deployment.access, make_reload(deployment))
    figures = FiguresOfAll(parent, gateway.scraping)
    gateway.scraping.collect = figures.collect
    tracing = traced(gateway, deployment.tracing)
    async with tracing, at_work(texts), anyio.create_task_group() as tasks:
        addresses = await open_doors(tasks, deployment, gateway, shared_ports=True)
        parent.push(Listening(tuple(addresses)))
        tasks.start_soon(_keep_connected, gateway, link, parent)
        await _obey(parent, gateway, figures, texts, deployment)
        end_streams(gateway)
        tasks.cancel_scope.cancel()
    if os.getppid() != parent_pid:  # it was killed, and nobody else tidies up
        rmtree(Path(link).parent, ignore_errors=True)


async def _keep_connected(gateway: Gateway, path: str, parent: MessageStream) -> None:
    texts: dict[str, Text] = {}
    while True:
        try:
            async with connect(path, gateway.name) as link:
                await _serve(gateway, link, texts, parent)
        except* LinkLost as lost:
            log.debug("no_worker", reason=str(lost.exceptions[0]))
        gateway.close()
        await anyio.sleep(RETRY_S)


async def _serve(
    gateway: Gateway, link: SocketLink, texts: dict[str, Text], parent: MessageStream
) -> None:
    """Until the worker is gone."""
    welcome = link.welcome
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.beat)
        if welcome.model not in texts:
            path = Path(welcome.model)
            texts[welcome.model] = await anyio.to_thread.run_sync(from_path, path)
        gateway.open(
            texts[welcome.model],
            link,
            welcome.context_length,
            first_stream=welcome.first_stream,
            shared=True,
        )
        parent.push(Serving())
        log.info("worker_found", gateway=gateway.name)
        await attend(gateway, link)
        log.warning("worker_lost", running=gateway.running)
        tasks.cancel_scope.cancel()


async def _obey(
    parent: MessageStream,
    gateway: Gateway,
    figures: FiguresOfAll,
    texts: TextKeeper | None,
    deployment: Deployment,
) -> None:
    """What the parent says, until this process has to end."""
    async with anyio.create_task_group() as tasks:

        async def drained() -> None:
            await drain(gateway, deployment.server.drain_timeout_s)
            tasks.cancel_scope.cancel()

        try:
            while True:
                match await parent.receive():
                    case Drain():
                        tasks.start_soon(drained)
                    case Loading(stage):
                        if gateway.state == "loading":  # else it comes late
                            gateway.stage = stage
                    case Render() as question:
                        figures.render(question)
                    case Collected() as answer:
                        figures.collected(answer)
                    case Update(text):
                        deployment = read(text)
                        set_level(deployment.server.log_level)
                        if texts is not None:
                            texts.retain(deployment.retention)
                        await gateway.reload(deployment.access, make_reload(deployment))
        except LinkLost:
            tasks.cancel_scope.cancel()


if __name__ == "__main__":
    run(work)
