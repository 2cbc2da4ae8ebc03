import random
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from plancha_texts.store import Row, Store, said_as_bytes


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_however_the_tree_is_balanced_no_deleted_text_is_left(
    folder: Path, raw: Callable[[], bytes], seed: int
) -> None:
    """SQLite itself leaves parts of some of these behind: see the module's docstring."""
    store, draw, there = Store(folder / "texts.db"), random.Random(seed), set[str]()
    for created in range(30):
        for _ in range(40):
            name = f"{draw.getrandbits(64):016x}"
            text = f"<{name}>" + "x" * draw.choice([10, 50, 200, 800, 3000, 9000])
            store.write(
                Row(
                    request=name,
                    tenant=draw.choice("ab"),
                    model="tiny",
                    created=created,
                    hashed=False,
                    said=said_as_bytes([text], None, []),
                )
            )
            there.add(name)
        for name in draw.sample(sorted(there), min(len(there), draw.choice([5, 30, 60]))):
            assert store.delete(name)
            there.remove(name)
        assert store.scrub()
        on_disk = {found.decode() for found in re.findall(rb"<([0-9a-f]{16})>", raw())}
        assert on_disk == there
    store.close()


def test_many_open_a_new_file_at_once(folder: Path) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(8)

    def open_it() -> None:
        try:
            start.wait()
            Store(folder / "texts.db").close()
        except BaseException as error:
            failures.append(error)

    for _ in range(5):
        threads = [threading.Thread(target=open_it) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (folder / "texts.db").unlink()
    assert failures == []
