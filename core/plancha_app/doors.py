"""A deployment's transports, opened: where clients come in."""

import anyio
from anyio.abc import TaskStatus

from plancha.contracts import LoadError
from plancha.gateway import Gateway, Transport
from plancha_app.assembly import make, make_site
from plancha_app.deployment import Deployment


async def open_doors(
    tasks: anyio.abc.TaskGroup,
    deployment: Deployment,
    gateway: Gateway,
    *,
    shared_ports: bool = False,
) -> list[str]:
    """Every transport's address, once all listen. They run in `tasks` until cancelled.

    Raises what making a plugin raises, and `LoadError` when one cannot listen.
    """
    site = make_site(
        deployment, model=deployment.model.name, vocabulary=0, shared_ports=shared_ports
    )
    addresses: list[str] = []
    for name, table in deployment.transport.items():
        section = f"transport.{name}"
        transport = make(section, table, site)
        addresses.append(await tasks.start(_listen, section, transport, gateway))
    return addresses


async def _listen(
    section: str,
    transport: Transport,
    gateway: Gateway,
    *,
    task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
) -> None:
    try:
        await transport.run(gateway, task_status.started)
    except OSError as error:
        raise LoadError(f"{section} cannot listen: {error}") from error
