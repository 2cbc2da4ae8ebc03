"""nginx as our example configures it, in front of a server under test."""

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import attrs

EXAMPLE = Path(__file__).parents[2] / "deploy" / "nginx.conf"
PROGRAMS = ("nginx", "openssl")
START_S = 30.0


@attrs.frozen
class Nginx:
    """What listens, and what a client has to trust."""

    url: str
    plain_url: str
    trust: ssl.SSLContext


def missing() -> list[str]:
    """Programs that are not here."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def certificate(folder: Path) -> tuple[Path, Path]:
    """Of localhost, signed by itself; its key."""
    made, key = folder / "made.pem", folder / "made.key"
    command = "openssl req -x509 -nodes -days 1 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-out", str(made), "-keyout", str(key)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return made, key


def configuration(example: str, changes: dict[str, str]) -> str:
    """The example with these parts changed. Each must be there, and once."""
    for part, put in changes.items():
        assert example.count(part) == 1, f"the example has {part!r} {example.count(part)} times"
        example = example.replace(part, put)
    return example


@contextmanager
def in_front_of(port: int, folder: Path) -> Iterator[Nginx]:
    """nginx before what listens on `port`; its files are in `folder`."""
    made, key = certificate(folder)
    secure, plain = free_port(), free_port()
    ours = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    changes = {
        "http {\n": f"http {{\naccess_log off;\n{ours}",
        "server 127.0.0.1:8000;": f"server 127.0.0.1:{port};",
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ssl http2;": f"listen 127.0.0.1:{secure} ssl http2;",
        "/etc/nginx/llm.example.pem;": f"{made};",
        "/etc/nginx/llm.example.key;": f"{key};",
    }
    file = folder / "nginx.conf"
    file.write_text(configuration(EXAMPLE.read_text(), changes))
    settings = f"daemon off; pid {folder}/pid; error_log {folder}/log;"
    if os.geteuid() == 0:
        settings += " user root;"  # others may not look into a test's folder
    command = ["nginx", "-p", str(folder), "-c", str(file), "-g", settings]
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        wait_for(secure, process, folder)
        yield Nginx(
            f"https://localhost:{secure}",
            f"http://localhost:{plain}",
            ssl.create_default_context(cafile=made),
        )
    finally:
        process.terminate()
        process.wait(START_S)


def wait_for(port: int, process: "subprocess.Popen[bytes]", folder: Path) -> None:
    for _ in range(int(START_S * 100)):
        with closing(socket.socket()) as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            break
        try:
            process.wait(0.01)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError((folder / "said").read_text())
