"""Where the parts of a gateway's process meet that answer a scraper of figures."""

from collections.abc import Awaitable, Callable

import attrs


@attrs.define
class Scraping:
    """Both give whole families in Prometheus' text format 0.0.4.

    A transport sets `render`: the figures of this process, and not of its worker, which are told
    once by whoever is asked. `collect` is None for a gateway on its own; else it brings what all
    gateways render, each sample with a label that says whose it is, and raises `RequestFailed`
    when it cannot.
    """

    render: Callable[[], str] | None = None
    collect: Callable[[], Awaitable[str]] | None = None
