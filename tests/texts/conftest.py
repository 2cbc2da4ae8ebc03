"""Exchanges to keep, and everything that is on the disk afterwards."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plancha.texts import Exchange
from plancha_texts.hashing import Secrets
from plancha_texts.keeper import TextKeeper
from plancha_texts.retention import Policy, Retention

NOW = 1_800_000_000.0


class Wall:
    """A wall clock that a test sets."""

    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "kept"
    found.mkdir()
    return found


Keep = Callable[..., TextKeeper]


@pytest.fixture
def keeper(folder: Path, wall: Wall) -> Iterator[Keep]:
    """`keeper(acme=30)`: one more on the same file, with these settings."""
    made: list[TextKeeper] = []

    def make(**settings: Retention) -> TextKeeper:
        secrets = Secrets(folder / "secrets")
        made.append(TextKeeper(folder / "texts.db", secrets, Policy(settings), wall))
        return made[-1]

    yield make
    for each in made:
        if not each._pool._shutdown:
            each.close()


@pytest.fixture
def said() -> Callable[..., Exchange]:
    def make(request: str, **fields: Any) -> Exchange:
        given: dict[str, Any] = {
            "tenant": "acme",
            "model": "tiny",
            "created": int(NOW),
            "prompts": ("What is said",),
            "messages": None,
            "outputs": ("and answered",),
            "tokens": 10,
        }
        return Exchange(request=request, **{**given, **fields})

    return make


@pytest.fixture
def raw(folder: Path) -> Callable[[], bytes]:
    """All bytes of all files, whatever they are."""

    def read() -> bytes:
        return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())

    return read
