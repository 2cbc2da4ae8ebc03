"""The key that signs the ledger: a file of its own that nobody else may read."""

import hmac
import os
import secrets
import stat
import tempfile
from pathlib import Path

from plancha.contracts import LoadError

KEY_BYTES = 32
MOST_BYTES = 4096
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_key(path: Path) -> bytes:
    """The key in a file. Raises `LoadError` when it is not there, open to others, or too short."""
    key = private_bytes(path)
    if not KEY_BYTES <= len(key) <= MOST_BYTES:
        raise LoadError(
            f"{path}: a key of {len(key)} bytes; it must have {KEY_BYTES} to {MOST_BYTES}, "
            f"such as `head -c {KEY_BYTES} /dev/urandom` makes"
        )
    return key


def read_or_make_key(path: Path) -> bytes:
    """As `read_key`; makes the file, with random bytes, where there is none."""
    if not path.exists():
        try:
            _make(path)
        except OSError as error:
            raise LoadError(f"{path}: the key cannot be made: {error.strerror}") from None
    return read_key(path)


def key_check(key: bytes) -> bytes:
    """Says later whether a key is the same one, and nothing else about it."""
    return hmac.digest(key, b"plancha ledger key", "sha256")


def private_bytes(path: Path) -> bytes:
    """A secret file's content. Raises `LoadError` if others than its owner could read it too."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}") from None
    if mode & OTHERS:
        raise LoadError(f"{path}: others can read it (mode {mode:04o}); `chmod 600 {path}`")
    return content


def _make(path: Path) -> None:
    """All of it or nothing, and never in place of one that somebody else made meanwhile."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        sync_folder(path.parent)
    finally:
        os.unlink(temporary)


def sync_folder(folder: Path) -> None:
    """Make the names in it durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
