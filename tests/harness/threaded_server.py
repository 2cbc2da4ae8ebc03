"""An aiohttp application in a thread of its own, so that a test can wait for other programs."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

HANG_S = 60.0


@contextmanager
def served(add_routes: Callable[[web.UrlDispatcher], None]) -> Iterator[str]:
    """Its URL, while it answers. Handlers of clients that leave are cancelled."""
    ready, stop, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()
    address = ""

    async def run() -> None:
        nonlocal address
        app = web.Application()
        add_routes(app.router)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(HANG_S)
        yield address
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
