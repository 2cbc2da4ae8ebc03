"""Looks and draws until somebody leaves; a server that is gone is looked for again."""

import signal

import anyio
import attrs
from anyio import CancelScope, create_task_group, open_signal_receiver
from rich.console import Console
from rich.live import Live
from rich.text import Text

from plancha_app.complaints import printable
from plancha_app.keyboard import keys, single_keys
from plancha_app.remote.server_error import ServerError
from plancha_app.remote.session import Remote
from plancha_app.sizes import seconds_text
from plancha_app.top.frame import Page, frame
from plancha_app.top.history import History
from plancha_app.top.looks import BAD, FAINT, Hues
from plancha_app.top.view import View, look, understand


@attrs.define(kw_only=True, eq=False)
class Screenful:
    """What is on the screen, and what it is made of."""

    console: Console
    title: str
    hues: Hues
    history: History = attrs.field(factory=History)
    view: View | None = None
    trouble: str = ""  # why the last look failed
    lost_s: float = 0.0  # since when it does

    def show(self, live: Live, interval: float) -> None:
        """Draw it anew, in the size that the terminal has now."""
        if self.view is None:
            return
        page = Page.of(self.console, self.console.height, self.hues)
        drawn = frame(self.view, self.history, page, self.title, self._status(interval))
        live.update(drawn, refresh=True)

    def _status(self, interval: float) -> Text:
        if not self.trouble:
            return Text(f"q leaves; a look every {interval:g} s", FAINT, no_wrap=True)
        line = Text(f"{self.trouble}; trying again", f"bold {BAD}", no_wrap=True)
        line.append(f", for {seconds_text(anyio.current_time() - self.lost_s)}", FAINT)
        line.truncate(self.console.width, overflow="ellipsis")
        return line


async def watch(there: Remote, first: View, screenful: Screenful, interval: float) -> None:
    """Until q, or SIGTERM. The first look has been had."""
    screenful.view = first
    screenful.history.add(first)
    with (
        single_keys() as has_keys,
        Live(console=screenful.console, screen=True, auto_refresh=False) as live,
    ):
        async with create_task_group() as tasks:
            tasks.start_soon(
                _resized_or_told_to_stop, screenful, live, interval, tasks.cancel_scope
            )
            if has_keys:
                tasks.start_soon(_leave_on_q, tasks.cancel_scope)
            while True:
                screenful.show(live, interval)
                await anyio.sleep(interval)
                await _look(there, screenful)


async def _look(there: Remote, screenful: Screenful) -> None:
    try:
        view = understand(await look(there), there.address.root)
    except ServerError as error:
        if not screenful.trouble:
            screenful.lost_s = anyio.current_time()
        screenful.trouble = printable(str(error))
        return
    screenful.trouble = ""
    screenful.view = view
    screenful.history.add(view)


async def _leave_on_q(scope: CancelScope) -> None:
    async for typed in keys():
        if "q" in typed.lower():
            scope.cancel()


async def _resized_or_told_to_stop(
    screenful: Screenful, live: Live, interval: float, scope: CancelScope
) -> None:
    with open_signal_receiver(signal.SIGWINCH, signal.SIGTERM) as signals:
        async for number in signals:
            if number == signal.SIGTERM:
                scope.cancel()
            screenful.show(live, interval)
