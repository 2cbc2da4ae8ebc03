"""What a scraper is told, whichever of several gateways it happened to ask."""

from collections.abc import Awaitable, Callable

import attrs


@attrs.frozen
class Exposition:
    """Figures of one gateway, in Prometheus' text format 0.0.4, as whole families.

    `own` are its process's, and are told of every gateway, by a label; `worker` are those that the
    gateways of one worker all know alike, and are told once. No family is in both.
    """

    own: str
    worker: str = ""  # before it has said anything


@attrs.define
class Scraping:
    """Where a gateway's process puts the two halves of an answer together.

    A transport sets `render`. `collect` is None for a gateway on its own; else it brings what all
    of them tell in one text, and raises `RequestFailed` when it cannot.
    """

    render: Callable[[], Exposition] | None = None
    collect: Callable[[], Awaitable[str]] | None = None
