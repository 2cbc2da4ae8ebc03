"""A server in a process of its own, so that its memory and its log are its own too."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import pytest
from hypothesis import settings

SCRIPT = Path(__file__).parent / "scripted_server.py"
HANG_S = 60.0
MOST_GROWTH_MIB = 200
"""More than a storm may leave behind or need at once: 256 MiB of bodies would show."""

ONE_LINE = {"http_request", "socket_request", "http_malformed"}
"""What is logged of a request, and of what is none."""

settings.register_profile("fuzz", deadline=None)


class Attacked:
    """The server, and what can be told of it from outside."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        assert process.stdout is not None
        self.url = process.stdout.readline().strip()
        self._process = process
        self._log = log
        self.began_mib = self.peak_mib()

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def peak_mib(self) -> float:
        """The most memory it ever had."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024

    def lines(self) -> list[dict[str, Any]]:
        """Its log."""
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def status(self, method: str, path: str, body: Any = None, key: str | None = None) -> int:
        """Of the answer to one request on a connection of its own."""
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)) as connection:
            connection.request(method, path, json.dumps(body), headers)
            response = connection.getresponse()
            response.read()
            return response.status

    async def exchange(self, data: bytes, pieces: int = 1) -> bytes:
        """What it says to these bytes until it closes, or the connection is a WebSocket.

        It may close before all has been sent.
        """
        async with asyncio.timeout(HANG_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            answer = b""
            try:
                step = max(1, len(data) // pieces)
                for start in range(0, len(data), step):
                    writer.write(data[start : start + step])
                    await writer.drain()
                while 101 not in self.statuses(answer) and (more := await reader.read(2**20)):
                    answer += more
            except ConnectionError:
                return b""
            finally:
                writer.transport.abort()
                with suppress(ConnectionError):
                    await writer.wait_closed()
            return answer

    @staticmethod
    def statuses(answer: bytes) -> list[int]:
        """Of the responses in it."""
        return [int(status) for status in re.findall(rb"HTTP/\d\.\d (\d{3}) ", answer)]

    def assert_unharmed(self, key: str | None = None) -> None:
        """It answers, needed no more memory than before, and logged nothing but requests."""
        assert self.status("GET", "/health/live") == 200
        assert self.status("POST", "/v1/completions", {"prompt": "x", "max_tokens": 2}, key) == 200
        assert self._process.poll() is None
        assert self.peak_mib() - self.began_mib < MOST_GROWTH_MIB
        for line in self.lines():
            assert "exception" not in line and "exc_info" not in line, line
            assert line["event"] in ONE_LINE, line


@contextmanager
def attacked(folder: Path, **table: Any) -> Iterator[Attacked]:
    log = folder / "log"
    with log.open("w") as stderr:
        process = _start(table, stderr)
        try:
            yield Attacked(process, log)
        finally:
            process.terminate()
            process.wait(HANG_S)
            assert process.stdout is not None
            process.stdout.close()


def _start(table: dict[str, Any], stderr: IO[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), json.dumps(table)],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


Attack = Callable[..., Any]


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> Attack:
    """`with attack(**options) as server`."""
    return lambda **table: attacked(tmp_path_factory.mktemp("attacked"), **table)
