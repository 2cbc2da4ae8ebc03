"""A client of an embedded kernel, and how to wait until all of its work is done."""

import anyio.lowlevel

from plancha.calls.call import Call
from plancha.gateway import Gateway
from plancha.kernel import Kernel
from plancha.messages import FinishReason
from plancha.streams.generation import Generation


async def collect(gateway: Gateway, call: Call) -> tuple[str, list[FinishReason], Generation]:
    """The whole text, the finish reasons, and the generation. Raises `RequestFailed`."""
    text = ""
    reasons: list[FinishReason] = []
    async with await gateway.generate(call) as generation:
        async for deltas in generation:
            text += "".join(delta.text for delta in deltas)
            reasons += [delta.finish_reason for delta in deltas if delta.finish_reason]
    return text, reasons, generation


async def quiet(kernel: Kernel) -> None:
    """Wait until nobody runs or waits and all is told; the test's timeout is the guard.

    Raises `AssertionError` if not every block is back then.
    """
    assert kernel.planner is not None, "the kernel is not loaded"
    while kernel.planner.sequences or kernel.planner.in_flight or kernel.gateway.running:
        await anyio.lowlevel.checkpoint()
    load = kernel.planner.load()
    back = load.free_blocks + load.cached_blocks
    assert back == load.total_blocks, f"{load.total_blocks - back} blocks are not back"
