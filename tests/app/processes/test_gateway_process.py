"""A gateway's process and its parent, which is the test."""

from pathlib import Path

import anyio

from plancha_app.child import Child
from plancha_app.deployment import Deployment
from plancha_app.words import FromChild, Listening, Setup, written

HANG_S = 60


async def test_a_gateway_that_has_to_end_leaves_the_links_folder_to_a_parent_that_lives(
    tmp_path: Path,
) -> None:
    """Its parent may give up one that hangs; the worker is there for the others all the same."""
    link = tmp_path / "link" / "worker"
    link.parent.mkdir()
    serves = anyio.Event()
    setup = Setup(written(Deployment().listening_at(None, 0)), str(link), "gateway-1")

    def heard(child: Child, word: FromChild) -> None:
        if isinstance(word, Listening):
            serves.set()

    child = Child(
        name="gateway-1",
        module="plancha_app.gateway_process",
        setup=lambda: setup,
        heard=heard,
        parting_s=HANG_S,
    )
    with anyio.fail_after(HANG_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(child.keep)
            await serves.wait()
            child.stop()
    assert link.parent.exists()
