"""A server's URL as people write it: with a scheme or without, with /v1 or without."""

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import attrs

from plancha_app.complaints import Mistake

HERE = "http://127.0.0.1:8000"
"""Where `plancha serve` listens unless told otherwise."""

_VERSION = re.compile(r"v\d+(alpha|beta)?\d*")


@attrs.frozen
class Address:
    """Where a server is, without a slash at the end."""

    root: str
    api: str  # what /chat/completions comes after

    @staticmethod
    def parse(url: str) -> "Address":
        """`HOST:PORT`, or a URL whose path may name the API's version. Raises `Mistake`."""
        written = url if "://" in url else f"http://{url}"
        try:
            parts = urlsplit(written)
            right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # the port is no number, or out of range
            right = False
        if not right or any(map(str.isspace, url)):
            raise Mistake(f"{url!r} is no server's address; it must be such as {HERE}")
        if parts.username is not None or parts.query or parts.fragment:
            raise Mistake(
                "a server's address holds no user, query or fragment; a key is given by --key-file"
            )
        base = written.rstrip("/")
        if any(map(_VERSION.fullmatch, parts.path.split("/"))):
            return Address(base.rpartition("/")[0], base)
        return Address(base, f"{base}/v1")

    @property
    def is_here(self) -> bool:
        """Whether it is this machine's loopback."""
        host = urlsplit(self.root).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")

    @staticmethod
    def choose(url: str | None, environment: Mapping[str, str] = os.environ) -> "Address":
        """As typed; or where OPENAI_BASE_URL says, as it is there; or this machine."""
        if url is None and (base := environment.get("OPENAI_BASE_URL", "").strip()):
            found = Address.parse(base)
            return attrs.evolve(found, api=base.rstrip("/"))
        return Address.parse(url or HERE)

    def __str__(self) -> str:
        return self.root
