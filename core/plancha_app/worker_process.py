"""`python -m plancha_app.worker_process`: the half that computes, as a child of `plancha serve`."""

import asyncio
from contextlib import suppress

import anyio
import attrs
from prometheus_client import ProcessCollector

from plancha.links.link import LinkLost
from plancha.links.message_stream import MessageStream
from plancha.links.socket_gateways import SocketGateways
from plancha.startup import Stage
from plancha_app.child_process import die_with_parent, run
from plancha_app.deployment import Deployment
from plancha_app.ledgers import ledger_of
from plancha_app.loading import load
from plancha_app.logs import set_level
from plancha_app.model import open_model
from plancha_app.progress import Tell
from plancha_app.words import Loading, Serving, Update, read


async def work(parent: MessageStream, deployment: Deployment, link: str) -> None:
    """Load the model, then compute for whichever gateway comes, until the parent has gone."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_obey, parent, tasks.cancel_scope)
        async with ledger_of(deployment) as ledger:
            worker, _ = await load(deployment, ledger, open_model, _teller(parent))
            site = worker.site
            ProcessCollector(namespace="plancha_worker", registry=worker.figures.blocking)
            gateways = SocketGateways(
                link, model=site.model, context_length=site.loaded().context_length
            )
            tasks.start_soon(_tell, parent, gateways)
            await worker.run(gateways.run)


def _teller(parent: MessageStream) -> Tell:
    """Passes on each stage of the start; to be made on the event loop, and called anywhere."""
    loop = asyncio.get_running_loop()

    def tell(stage: Stage) -> None:
        with suppress(RuntimeError):  # the loop has ended, and what was loading is left behind
            loop.call_soon_threadsafe(parent.push, Loading(attrs.evolve(stage, text="")))

    return tell


async def _tell(parent: MessageStream, gateways: SocketGateways) -> None:
    await gateways.listening.wait()
    parent.push(Serving())


async def _obey(parent: MessageStream, scope: anyio.CancelScope) -> None:
    """Tenants and limits come by the gateways, each before whoever they let in."""
    try:
        while True:
            word = await parent.receive()
            if isinstance(word, Update):
                set_level(read(word.deployment).server.log_level)
    except LinkLost:
        scope.cancel()


if __name__ == "__main__":
    die_with_parent()
    run(work)
