"""A terminal, or two, in which the commands of a page are typed as a reader would type them.

Blocks are run in a folder of their own that looks like the repository. What a page leaves to the
reader is done too: `…` is any text in an output, the key shown last in `pk-…`, and in a tenant's
table the hash of its key, the newest first, in `sha256:…`; `PID` is the server's. Port 8000 is
another one that is free.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import attrs

from markdown_pages import ROOT, Block

HANG_S = 120.0
PORT = "8000"
END = "\x1e"
PIP = {
    "PIP_NO_INDEX": "1",
    "PIP_NO_DEPS": "1",
    "PIP_NO_BUILD_ISOLATION": "0",  # sic: it switches off what "no" stands before
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
"""What makes `pip install` put things where only the commands of this page see them."""


@attrs.define(eq=False)
class Shell:
    """`run` a page's blocks in their order; `close` in the end."""

    folder: Path
    environment: dict[str, str]
    port: str
    _bash: "subprocess.Popen[str]"
    _server: "subprocess.Popen[str] | None" = None
    _key: str = ""
    _hashes: dict[str, list[str]] = attrs.field(factory=dict)  # of each tenant, the newest first

    def run(self, block: Block) -> None:
        """Raises `AssertionError` when something else comes out than the page says."""
        if block.unrun is not None:
            return
        if block.file is not None:
            (self.folder / block.file).write_text(self._filled(block.text))
        elif block.is_server:
            command, expected = next(commands(block.text))
            self._serve(block.instead or command, "" if block.instead else expected)
        elif block.language == "console":
            for command, expected in commands(block.text):
                self._type(block, command, expected)
        elif block.language == "python" and block.excerpt is None:
            (self.folder / "block.py").write_text(self._filled(block.text))
            self._type(block, "python block.py", "")

    def close(self) -> None:
        """Ends the server as Ctrl-C does, and the shell."""
        self.stop_server()
        assert self._bash.stdin is not None and self._bash.stdout is not None
        self._bash.stdin.close()
        self._bash.wait()
        self._bash.stdout.close()

    def give_up(self) -> None:
        """Ends the server at once."""
        server, self._server = self._server, None
        if server is not None and server.stdout is not None:
            server.kill()
            server.wait()
            server.stdout.close()

    def stop_server(self) -> None:
        """Raises `AssertionError` unless it ends well."""
        server, self._server = self._server, None
        if server is None:
            return
        server.send_signal(signal.SIGINT)
        with _patience(server):
            code = server.wait()
        assert server.stdout is not None
        server.stdout.close()
        assert code == 0, (code, (self.folder / "server.log").read_text())

    def _serve(self, command: str, expected: str) -> None:
        self.stop_server()
        command = f"exec {self._filled(command).strip()} --port {self.port}"
        with (self.folder / "server.log").open("w") as log:
            self._server = subprocess.Popen(
                ("bash", "-c", command),
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._server.stdout is not None
        expected = expected or "…served at …"
        said = ""
        with _patience(self._server):
            while not matches(said, expected):
                line = self._server.stdout.readline()
                assert line, f"{command}: {said}{(self.folder / 'server.log').read_text()}"
                said += self._shown(line)

    def _type(self, block: Block, command: str, expected: str) -> None:
        code, out = self._answer(self._filled(command))
        assert code == block.exit_code, f"{block}: {command}\nexit code {code}\n{out}"
        if expected:
            assert matches(out, expected), f"{block}: {command}\n{out}\nis not\n{expected}"
        self._remember(out)

    def _answer(self, command: str) -> tuple[int, str]:
        """Exit code and output, whichever of the two streams it came by."""
        bash = self._bash
        assert bash.stdin is not None and bash.stdout is not None
        bash.stdin.write(f"{{\n{command}\n}} < /dev/null 2>&1\nprintf '\\036%d\\n' $?\n")
        bash.stdin.flush()
        out = ""
        with _patience(bash):
            while END not in out:
                line = bash.stdout.readline()
                assert line, f"the shell ended: {command}\n{out}"
                out += line
        out, _, code = out.partition(END)
        return int(code), self._shown(out)

    def _filled(self, text: str) -> str:
        text = re.sub(rf"\b{PORT}\b", self.port, text)
        if self._server is not None:
            text = re.sub(r"\bPID\b", str(self._server.pid), text)
        hashes: list[str] = []
        lines = []
        for line in text.replace("pk-…", self._key).splitlines(keepends=True):
            if header := re.match(r"\[tenants\.(\S+)\]", line):
                hashes = self._hashes.get(header[1], [])
            for each in hashes:
                line = line.replace("sha256:…", each, 1)
            lines.append(line)
        return "".join(lines)

    def _shown(self, output: str) -> str:
        return output.replace(self.port, PORT)

    def _remember(self, out: str) -> None:
        keys = re.findall(r"pk-[\w-]+", out)
        self._key = keys[-1] if keys else self._key
        for tenant, digest in re.findall(r'\[tenants\.(\S+)\]\s+keys = \["(sha256:\w+)"', out):
            self._hashes.setdefault(tenant, []).insert(0, digest)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a terminal's text, of one line or several, and what it printed."""
    command, expected = "", ""
    for line in text.splitlines(keepends=True):
        if command and not _is_whole(command):
            command += line
        elif line.startswith("$ "):
            if command:
                yield command, expected
            command, expected = line[2:], ""
        else:
            expected += line
    if command:
        yield command, expected


def _is_whole(command: str) -> bool:
    """Whether bash would wait for more: of a quote, of a here-document, after a backslash."""
    checked = subprocess.run(("bash", "-n"), input=command, capture_output=True, text=True)
    return not checked.stderr and not command.endswith("\\\n")


def matches(output: str, expected: str) -> bool:
    """Whether it is what a page shows: `…` is any text, and blanks at a line's end do not count."""
    parts = (re.escape(part) for part in _trimmed(expected).split("…"))
    return re.fullmatch(".*".join(parts), _trimmed(output), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return re.sub(r"[ \t]+\n", "\n", f"{text}\n").strip()


@contextmanager
def _patience(process: "subprocess.Popen[str]") -> Iterator[None]:
    """Whoever waits for it does not wait for ever."""
    timer = Timer(HANG_S, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def short_answers(deployment: str) -> str:
    """The same for a model whose answers may go on for ever, as those of a small one may."""
    assert "[executor]" in deployment and 'plugin = "torch"' in deployment
    return deployment.replace('plugin = "torch"', 'plugin = "torch"\ncontext_length = 96')


def free_port() -> str:
    """Five digits, which appear in no other number of an output."""
    while True:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = str(found.getsockname()[1])
        if len(port) == 5:
            return port
        time.sleep(0)


@contextmanager
def shell(folder: Path) -> Iterator[Shell]:
    """In a folder that has what a reader's copy of the repository has."""
    for name in ("docs", "deploy"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "plugins.toml").write_text(short_answers((ROOT / "plugins.toml").read_text()))
    programs, port = str(Path(sys.executable).parent), free_port()
    site = str(folder / "site-packages")
    environment = {
        **os.environ,
        **PIP,
        "PIP_TARGET": site,
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",  # where `plancha chat` looks
        "PYTHONPATH": site,
        "PATH": os.pathsep.join((programs, os.environ.get("PATH", ""))),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # none is needed, and some take seconds
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    bash = subprocess.Popen(
        ("bash",),
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    made = Shell(folder, environment, port, bash)
    try:
        yield made
    except BaseException:
        made.give_up()
        raise
    finally:
        made.close()
