"""Hashes that tell equal texts of one tenant, and that only who has its secret can make.

HMAC-SHA256 (RFC 2104, FIPS 198-1) under 32 random bytes of each tenant's own. Without them nobody
can try guesses against a hash, and equal texts of two tenants have nothing in common.
"""

import hmac
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Any

import attrs
import orjson

from plancha.contracts import LoadError

SECRET_BYTES = 32
PREFIX = "hmac-sha256:"


def keyed_hash(secret: bytes, said: str | Sequence[Any] | Mapping[str, Any]) -> str:
    """Of a text its UTF-8; of token ids or messages their JSON, with sorted keys and no spaces."""
    if isinstance(said, str):
        content = said.encode("utf-8", "surrogatepass")
    else:
        content = orjson.dumps(said, option=orjson.OPT_SORT_KEYS)
    return PREFIX + hmac.digest(secret, content, "sha256").hex()


@attrs.frozen
class Secrets:
    """The tenants' secrets: a file of 32 bytes for each, which only the server's user can read."""

    folder: Path

    def of(self, tenant: str) -> bytes:
        """The tenant's secret, made if there is none, also when several processes do so at once.

        Raises `LoadError` when it is there and unfit, OSError when it cannot be read or made.
        """
        path = self.folder / f"{tenant}.key"
        if not path.exists():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(path)
        secret = path.read_bytes()
        if len(secret) != SECRET_BYTES:
            raise LoadError(f"{path}: has {len(secret)} bytes; a secret has {SECRET_BYTES}")
        check_private(path)
        return secret


def check_private(path: Path) -> None:
    """Raises `LoadError` when others than the file's owner may do anything with it."""
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise LoadError(f"{path}: has the mode {mode:04o}; let nobody else read it: chmod 600")


def _make(path: Path) -> None:
    """Whole or not at all, and never in the place of one that is there."""
    new = path.with_name(f".{path.name}.{token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink()
