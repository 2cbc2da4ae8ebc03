"""Clients that cost little: raw sockets on one epoll, which count bytes and look for the end."""

import selectors
import socket
import time
from collections.abc import Iterable

import attrs

UPGRADE = (
    b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
RECEIVE = 1 << 18
ROUND_S = 0.005
"""Between looks: a reader that waits in epoll is woken by the server's every write, at its cost."""

TAIL = 40  # bytes kept of what came, in which an end may have begun


@attrs.frozen
class Ask:
    """What a client sends, and the bytes that end its answer."""

    request: bytes
    end: bytes
    upgrade: bool = False


def post(path: str, body: bytes) -> Ask:
    """An HTTP request whose answer is chunked (RFC 9112, section 7.1)."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return Ask(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body, b"\r\n0\r\n\r\n")


def message(text: bytes) -> Ask:
    """A short WebSocket message under the mask 0 (RFC 6455, section 5.2)."""
    frame = bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text
    return Ask(frame, b'"done"', upgrade=True)


@attrs.define(eq=False)
class Readers:
    """Open connections; all they received is `received` bytes with `openings` braces."""

    received: int = 0
    openings: int = 0  # of "{": each event has a fixed number of them
    _selector: selectors.BaseSelector = attrs.field(factory=selectors.DefaultSelector)
    _open: int = 0

    def connect(self, port: int, ask: Ask, clients: int) -> Iterable[int]:
        """Send every client's request, one after the other."""
        for number in range(clients):
            connection = socket.create_connection(("127.0.0.1", port))
            if ask.upgrade:
                connection.sendall(UPGRADE)
                answer = b""
                while b"\r\n\r\n" not in answer:
                    answer += connection.recv(4096)
            connection.sendall(ask.request)
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, [ask.end, b""])
            self._open += 1
            yield number

    def read_all(self) -> None:
        """Until each has seen its end. Raises `ConnectionError` when one is cut off before."""
        while self._open:
            time.sleep(ROUND_S)
            for key, _ in self._selector.select():
                assert isinstance(key.fileobj, socket.socket)
                self._take(key.fileobj, key.data)

    def _take(self, connection: socket.socket, state: list[bytes]) -> None:
        end, tail = state
        data = connection.recv(RECEIVE)
        if not data:
            raise ConnectionError(f"the server closed before the end; at last it said {tail!r}")
        self.received += len(data)
        self.openings += data.count(b"{")
        if end in tail + data:
            self._selector.unregister(connection)
            connection.close()
            self._open -= 1
        state[1] = data[-TAIL:]
