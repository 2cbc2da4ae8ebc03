"""The half that computes, loaded: the same in a process of its own and beside its gateway."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio.to_thread

from plancha.contracts import Text
from plancha.kernel import Worker
from plancha.ledger import Ledger
from plancha_app.assembly import make, make_site
from plancha_app.deployment import Deployment
from plancha_app.gpu_collector import GpuCollector
from plancha_app.progress import Tell, fetching, loading
from plancha_engine.report import Report

OpenModel = Callable[[str, Report], tuple[Path, Text]]
"""From a model as the deployment names it to its checkpoint and its text."""


async def load(
    deployment: Deployment, ledger: Ledger, open_model: OpenModel, tell: Tell
) -> tuple[Worker, Text]:
    """Fetch the model if it is not there, and load it; `tell` hears of each stage.

    Raises `LoadError`, `OptionsError` or `PluginError` with a message for the operator.
    """
    path, text = await anyio.to_thread.run_sync(
        open_model, deployment.model.name, fetching(tell), abandon_on_cancel=True
    )
    site = make_site(
        deployment,
        model=str(path),
        vocabulary=text.vocabulary,
        plain_bytes=text.plain_bytes,
    )
    executor = await anyio.to_thread.run_sync(  # it imports what takes seconds, torch for one
        make, "executor", deployment.executor, site, abandon_on_cancel=True
    )
    worker = Worker(
        site=site,
        executor=executor,
        make_scheduler=partial(make, "scheduler", deployment.scheduler),
        make_allocator=partial(make, "allocator", deployment.allocator),
        ledger=ledger,
    )
    worker.figures.blocking.register(GpuCollector())
    with loading(tell) as report:
        await worker.load(report)
    return worker, text
