"""`plancha top`: looks at a server again and again, and draws what it tells."""

import anyio
import orjson
from rich.console import Console

from plancha_app.complaints import printable
from plancha_app.machine_readable import show_json
from plancha_app.remote.address import Address
from plancha_app.remote.server_error import ServerError
from plancha_app.remote.session import Remote, remote
from plancha_app.top.frame import Page, frame
from plancha_app.top.history import History
from plancha_app.top.looks import Hues
from plancha_app.top.view import look, understand
from plancha_app.top.watching import Screenful, watch

TALL = 48
"""Lines of a frame that goes to no terminal."""


def run(
    address: Address, headers: dict[str, str], interval: float, *, once: bool, as_json: bool
) -> int:
    """Until q or Ctrl-C; or one frame. Raises `ServerError` if the server cannot be asked."""
    console = Console(highlight=False)
    if once or not console.is_terminal:
        anyio.run(_once, address, headers, interval, as_json, console)
    else:
        anyio.run(_watch, address, headers, interval, console)
    return 0


async def _once(
    address: Address, headers: dict[str, str], interval: float, as_json: bool, console: Console
) -> None:
    history = History()
    async with remote(address, headers) as there:
        title = await title_of(there)
        history.add(understand(await look(there), address.root))
        await anyio.sleep(interval)
        body = await look(there)
    view = understand(body, address.root)
    history.add(view)
    if as_json:
        show_json({**orjson.loads(body), "rates": _rates(history)})
        return
    height = console.height if console.is_terminal else TALL
    page = Page.of(console, height, hues_of(console))
    console.print(frame(view, history, page, title), end="")


def _rates(history: History) -> dict[str, object]:
    sample = history.samples[-1] if history.samples else None
    return {
        "output_tokens_per_s": None if sample is None else round(sample.output_per_s, 2),
        "prompt_tokens_per_s": None if sample is None else round(sample.prompt_per_s, 2),
        "tenants": {name: round(rate, 2) for name, rate in history.tenants_per_s.items()},
    }


async def _watch(
    address: Address, headers: dict[str, str], interval: float, console: Console
) -> None:
    async with remote(address, headers) as there:
        title = await title_of(there)
        first = understand(await look(there), address.root)
        screenful = Screenful(console=console, title=title, hues=hues_of(console))
        await watch(there, first, screenful, interval)


def hues_of(console: Console) -> Hues:
    """Letters take the place of colours where there are none."""
    return Hues(coloured=console.color_system is not None and not console.no_color)


async def title_of(there: Remote) -> str:
    """The model and where it is; the place alone where none is listed."""
    try:
        return printable(f"{(await there.models())[0]} at {there.address}")
    except ServerError:
        return str(there.address)
