"""A whole `plancha serve` under test, and every byte that its processes leave anywhere."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import attrs

import canary_plugins
from plancha.access import key_hash
from plancha_text.byte_text import byte_tokenizer

CANARY = "Qx7-canary-Zw9"
LABEL = "Vt5-label-Kp2"
KEYS = {name: f"sk-{name}" for name in ("acme", "other", "hashed", "boss")}
HANG_S = 60.0


@attrs.define(eq=False)
class CanaryServer:
    """`folders` hold all that it can write to; `out` and `err` are files in another."""

    process: "subprocess.Popen[bytes]"
    folders: tuple[Path, ...]
    out: Path
    err: Path

    @property
    def logs(self) -> str:
        return self.err.read_text(errors="replace")

    async def url(self) -> str:
        """Once it serves."""
        pattern = r"served at (?:raising and )?(http://\S+)"
        with anyio.fail_after(HANG_S):
            while (found := re.search(pattern, self.out.read_text())) is None:
                assert self.process.poll() is None, self.logs
                await anyio.sleep(0.02)
        return found[1]

    async def said(self, event: str, times: int = 1) -> None:
        """Until the logs tell of it."""
        with anyio.fail_after(HANG_S):
            while self.logs.count(event) < times:  # noqa: ASYNC110
                await anyio.sleep(0.02)

    def pid(self, which: str) -> int:
        """Of a child."""
        (found,) = re.findall(rf'"which": ?"{which}", "pid": ?(\d+)', self.logs)[-1:]
        return int(found)

    def left(self) -> dict[str, bytes]:
        """What is on the disk and in the streams, by name."""
        found = [path for folder in self.folders for path in folder.rglob("*")]
        files = [path for path in found if path.is_file()]
        return {str(path): path.read_bytes() for path in (*files, self.out, self.err)}


def spellings(text: str) -> list[bytes]:
    """A text as it might be found: plain, in hex, and as ids of a tokenizer of bytes."""
    raw = text.encode()
    listed = [separator.join(map(str, raw)) for separator in (", ", ",", " ")]
    return [raw, raw.hex().encode(), b"".join(id.to_bytes(4, "little") for id in raw)] + [
        each.encode() for each in listed
    ]


def finds(text: str, left: dict[str, bytes]) -> list[str]:
    """Where it is found, with what is around it."""
    return [
        f"{name}: …{content[max(0, place - 150) : place + 80]!r}…"
        for name, content in left.items()
        for spelling in spellings(text)
        if (place := content.lower().find(spelling.lower())) >= 0
    ]


@contextmanager
def started(folder: Path, *, gateways: int, log_format: str) -> Iterator[CanaryServer]:
    """Killed at the end, if it still runs."""
    with TemporaryDirectory(prefix="canary-") as temporary:  # a socket's path must be short
        yield from _started(folder, Path(temporary), gateways, log_format)


def _started(
    folder: Path, temporary: Path, gateways: int, log_format: str
) -> Iterator[CanaryServer]:
    site, model, state = folder / "site", folder / "tiny", folder / "state"
    info = site / "canary_plugins-1.dist-info"
    for each in (info, model, state):
        each.mkdir(parents=True)
    shutil.copy(canary_plugins.__file__, site)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: canary-plugins\nVersion: 1\n")
    (info / "entry_points.txt").write_text(canary_plugins.ENTRY_POINTS)
    byte_tokenizer().tokenizer.save(str(model / "tokenizer.json"))
    file = folder / "deployment.toml"
    file.write_text(_deployment(model, state, gateways, log_format))
    server_out, server_err = folder / "out", folder / "err"
    environment = {
        **os.environ,
        "PYTHONPATH": str(site),
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(temporary),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with server_out.open("wb") as out, server_err.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "plancha_app", "serve", str(file)],
            cwd=state,
            stdout=out,
            stderr=err,
            env=environment,
        )
    try:
        yield CanaryServer(process, (state, temporary), server_out, server_err)
    finally:
        process.kill()
        process.wait()


def _deployment(model: Path, state: Path, gateways: int, log_format: str) -> str:
    settings = {"acme": '"none"', "other": '"none"', "hashed": '"hash"', "boss": '"none"'}
    tenants = "\n".join(
        f"[tenants.{name}]\nretention = {settings[name]}\n"
        f"operator = {'true' if name == 'boss' else 'false'}\n"
        f'keys = ["{key_hash(key.encode())}"]'
        for name, key in KEYS.items()
    )
    raising = f'raising = {{ says_backwards = "{CANARY[::-1]}" }}' if gateways == 0 else ""
    return f"""
model = {{ name = "{model}", served_name = "tiny" }}
batch = {{ max_sequences = 8 }}
executor.plugin = "quoting"
scheduler.plugin = "quoting"
ledger = {{ path = "{state}/ledger.sqlite", key_file = "{state}/key", anchor = "{state}/anchor" }}
texts = {{ path = "{state}/texts.db", secrets = "{state}/secrets" }}
server = {{ gateways = {gateways}, log_format = "{log_format}", log_level = "debug" }}
[transport]
http = {{ port = 0 }}
{raising}
{tenants}
"""
