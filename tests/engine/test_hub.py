"""The hub client against a hub on the loopback, and once through its own variables."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import attrs
import pytest
from huggingface_hub import constants

from plancha.contracts import LoadError
from plancha_engine.checkpoint import open_checkpoint
from plancha_engine.model_name import pull, resolve
from plancha_engine.report import LineReport

Make = Callable[..., Any]
NAME = "hf:org/tiny"
COMMIT = "c0ffee" + "0" * 34
SILENT = LineReport(lambda line: None)


@attrs.define
class Hub:
    """A repository `org/tiny` as the hub's HTTP interface shows it."""

    url: str
    files: dict[str, bytes] = attrs.field(factory=dict)
    token: str | None = None  # without it nobody sees the repository
    cut: str | None = None  # this file ends early
    wrong: str | None = None  # this file has a wrong byte
    status: int | None = None  # what every request is answered
    requests: list[str] = attrs.field(factory=list)

    def listing(self) -> bytes:
        siblings = [self._sibling(name, data) for name, data in self.files.items()]
        return json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": siblings}).encode()

    @staticmethod
    def _sibling(name: str, data: bytes) -> dict[str, Any]:
        sibling: dict[str, Any] = {"rfilename": name, "size": len(data)}
        if name.endswith((".safetensors", ".gguf")):
            digest = hashlib.sha256(data).hexdigest()
            sibling["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 130}
        return sibling

    def served(self, name: str) -> bytes:
        data = self.files[name]
        return data[:-1] + b"?" if name == self.wrong else data


def handler_for(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            path = self.path.partition("?")[0]
            hub.requests.append(path)
            revision_path = f"/org/tiny/resolve/{COMMIT}/"
            if hub.status is not None:
                self._refuse(hub.status, "")
            elif hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                self._refuse(401, "RepoNotFound")
            elif path in ("/api/models/org/tiny", "/api/models/org/tiny/revision/v1"):
                self._send(hub.listing(), body, "listing")
            elif path.startswith("/api/models/org/tiny/revision/"):
                self._refuse(404, "RevisionNotFound")
            elif path.startswith(revision_path) and path.removeprefix(revision_path) in hub.files:
                name = path.removeprefix(revision_path)
                self._send(hub.served(name), body, name)
            else:
                self._refuse(404, "RepoNotFound")

        def _send(self, data: bytes, body: bool, name: str) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(data[: len(data) // 2] if name == hub.cut else data)

        def _refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    loopback = Hub(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = handler_for(loopback)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("PLANCHA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "ENDPOINT", loopback.url)
    template = loopback.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # between the library's retries
    yield loopback
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def files(make_model: Make, tmp_path: Path) -> dict[str, bytes]:
    """A sharded model's files, with some that nobody needs."""
    folder = tmp_path / "saved"
    make_model("llama").save_pretrained(folder, max_shard_size="60KB")
    return {
        **{path.name: path.read_bytes() for path in sorted(folder.iterdir())},
        "chat_template.jinja": b"{{ messages }}",
        "consolidated.safetensors": b"the same weights under other names",
        "pytorch_model.bin": b"pickled",
        "original/params.json": b"{}",
        "README.md": b"# Tiny",
    }


def test_a_model_is_fetched_without_what_nobody_needs_and_then_needs_no_hub(
    hub: Hub, files: dict[str, bytes]
) -> None:
    hub.files = files

    folder = resolve(NAME, SILENT)

    wanted = {
        name
        for name in files
        if name.startswith("model-") or (name.endswith((".json", ".jinja")) and "/" not in name)
    }
    assert {path.name for path in folder.iterdir()} == wanted
    assert len(open_checkpoint(folder).load()) == 21
    hub.requests.clear()
    assert resolve(NAME, SILENT) == folder
    assert hub.requests == []


def test_a_pull_asks_the_hub_again_and_fetches_only_what_changed(
    hub: Hub, files: dict[str, bytes]
) -> None:
    hub.files = files
    resolve(NAME, SILENT)
    hub.requests.clear()
    said: list[str] = []

    pull(NAME, LineReport(said.append))

    assert hub.requests == ["/api/models/org/tiny"]
    assert said[0] == f"asking {hub.url} for {NAME}"


def test_a_file_that_went_missing_or_was_cut_in_the_cache_is_fetched_again(
    hub: Hub, files: dict[str, bytes]
) -> None:
    hub.files = files
    folder = resolve(NAME, SILENT)
    shard = next(folder.glob("model-00001*"))
    whole = shard.read_bytes()
    shard.unlink()

    assert resolve(NAME, SILENT) == folder
    assert shard.read_bytes() == whole


def test_a_single_gguf_file_is_the_model(hub: Hub) -> None:
    hub.files = {"tiny-Q8_0.gguf": b"GGUF...", "README.md": b"", "config.json": b"{}"}

    path = resolve(NAME, SILENT)

    assert path.name == "tiny-Q8_0.gguf"
    assert path.read_bytes() == b"GGUF..."


def test_of_many_gguf_files_one_must_be_named(hub: Hub) -> None:
    hub.files = {"a.gguf": b"GGUFa", "b.gguf": b"GGUFb"}

    with pytest.raises(LoadError, match=r"2 GGUF files, name one: hf:org/tiny/FILE .* a.gguf, b"):
        resolve(NAME, SILENT)
    assert resolve(f"{NAME}/b.gguf", SILENT).read_bytes() == b"GGUFb"
    with pytest.raises(LoadError, match=r"the repository has no file c.gguf"):
        resolve(f"{NAME}/c.gguf", SILENT)


def test_a_revision_is_asked_for_and_kept_apart(hub: Hub) -> None:
    hub.files = {"a.gguf": b"GGUFa"}

    resolve(f"{NAME}@v1", SILENT)
    assert hub.requests[0] == "/api/models/org/tiny/revision/v1"
    with pytest.raises(LoadError, match=r"hf:org/tiny@v9: http\S+ has no such revision"):
        resolve(f"{NAME}@v9", SILENT)


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (("pytorch_model.bin",), r"only pickled weights \(pytorch_model.bin\), which can run code"),
        (("README.md",), "has no .safetensors and no .gguf file"),
        (("consolidated.safetensors",), "the repository has no config.json"),
        (("model.safetensors.index.json", "config.json"), r"lacks model-00001\S+, .*named in"),
    ],
)
def test_a_repository_without_a_model_is_refused_with_what_it_lacks(
    hub: Hub, files: dict[str, bytes], kept: tuple[str, ...], message: str
) -> None:
    hub.files = {name: files[name] for name in kept}

    with pytest.raises(LoadError, match=f"{NAME}: .*{message}"):
        resolve(NAME, SILENT)


def test_an_unknown_architecture_is_refused_before_its_weights_are_fetched(
    hub: Hub, files: dict[str, bytes]
) -> None:
    hub.files = files | {"config.json": b'{"architectures": ["MambaForCausalLM"]}'}

    with pytest.raises(LoadError, match=r"architectures is \['MambaForCausalLM'\]"):
        resolve(NAME, SILENT)

    assert not any("model-0" in path for path in hub.requests)


def test_a_download_cut_in_the_middle_is_noticed_and_resumed_later(
    hub: Hub, files: dict[str, bytes]
) -> None:
    hub.files = files
    hub.cut = next(name for name in files if name.startswith("model-00002"))

    with pytest.raises(LoadError, match=f"{NAME}: .*hung up; check the network"):
        resolve(NAME, SILENT)

    hub.cut = None
    assert len(open_checkpoint(resolve(NAME, SILENT)).load()) == 21


def test_a_file_with_a_wrong_byte_is_refused(hub: Hub, files: dict[str, bytes]) -> None:
    hub.files = files
    hub.wrong = next(name for name in files if name.startswith("model-00002"))

    with pytest.raises(LoadError, match=f"{hub.wrong} arrives damaged"):
        resolve(NAME, SILENT)


def test_a_hub_s_refusal_says_what_to_do(hub: Hub) -> None:
    with pytest.raises(LoadError, match="has no such model, or it is private: set HF_TOKEN"):
        resolve("hf:org/absent", SILENT)
    with pytest.raises(LoadError, match="not a valid organisation/name"):
        resolve("hf:org/a--b", SILENT)
    hub.status = 500
    with pytest.raises(LoadError, match="answered 500; try again later"):
        resolve(NAME, SILENT)


def test_a_hub_out_of_reach_is_named(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")

    with pytest.raises(LoadError, match=r"http://127.0.0.1:9 could not be reached, or hung up; c"):
        resolve(NAME, SILENT)


def test_the_library_s_own_variables_decide_where_from_where_to_and_as_whom(
    hub: Hub, tmp_path: Path
) -> None:
    hub.files = {"a.gguf": b"GGUFa"}
    hub.token = "hf_secret"
    code = (
        "from plancha_engine.model_name import pull\n"
        "from plancha_engine.report import LineReport\n"
        f"print(pull({NAME!r}, LineReport(print)))"
    )
    environment = os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_TOKEN": "hf_secret",
    }
    environment.pop("HF_HUB_CACHE", None)

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )

    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.splitlines()[-1]).read_bytes() == b"GGUFa"
    assert Path(done.stdout.splitlines()[-1]).is_relative_to(tmp_path / "home")
    assert "hf_secret" not in done.stdout + done.stderr
