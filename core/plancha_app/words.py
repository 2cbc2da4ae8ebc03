"""What the parent process and its children tell each other over the socket between them.

The socket's end is a word too: to a child it means to stop at once, whoever closed it and why.
"""

from collections.abc import Mapping
from typing import Any

import attrs
import orjson

from plancha.startup import Stage
from plancha_app.deployment import Deployment, PluginTable, understand


@attrs.frozen
class Setup:
    """First to every child: what to do, and what to be called in the logs."""

    deployment: str
    link: str  # path of the socket at which the worker listens for gateways
    process: str


@attrs.frozen
class Update:
    """The deployment was read again, and what changed may change while the process runs."""

    deployment: str


@attrs.frozen
class Drain:
    """Take nothing new and end when what runs has ended."""


@attrs.frozen
class Listening:
    """A gateway's transports can be reached, though it may have no worker yet."""

    addresses: tuple[str, ...]


@attrs.frozen
class Loading:
    """A worker: what its start is busy with. The parent passes it on to the gateways."""

    stage: Stage


@attrs.frozen
class Serving:
    """A worker: the model is loaded. A gateway: it takes requests."""


@attrs.frozen
class Alive:
    """A child's sign of life, given by its event loop now and then."""


@attrs.frozen
class Collect:
    """A gateway was asked for figures: what do all gateways render?"""

    number: int  # the asker's own, which `Collected` repeats


@attrs.frozen
class Render:
    """To every gateway: what are your figures?"""

    number: int  # the parent's own, which `Rendered` repeats


@attrs.frozen
class Rendered:
    """A gateway's figures, in Prometheus' text format."""

    number: int
    text: str


@attrs.frozen
class Collected:
    """Those of all gateways, each with a label, and what the parent knows of their processes."""

    number: int
    text: str


@attrs.frozen
class Failed:
    """The child cannot do its work, for a reason that is the operator's to put right."""

    reason: str


WORDS = (
    Setup,
    Update,
    Drain,
    Render,
    Collected,
    Listening,
    Loading,
    Serving,
    Alive,
    Collect,
    Rendered,
    Failed,
)
ToChild = Setup | Update | Drain | Render | Collected | Loading
FromChild = Listening | Loading | Serving | Alive | Collect | Rendered | Failed


def written(deployment: Deployment) -> str:
    """A deployment as JSON, in the shape of its file."""
    return orjson.dumps(_plain(deployment), default=str).decode()  # paths


def read(text: str) -> Deployment:
    """What `written` wrote."""
    deployment, problems = understand(orjson.loads(text))
    assert problems == (), "the parent has checked it"
    return deployment


def _plain(value: Any) -> Any:
    """TOML knows no null: what is None is left out, and so at its default."""
    if isinstance(value, PluginTable):
        return {"plugin": value.plugin, **value.options}
    if attrs.has(type(value)):
        value = {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    return value
