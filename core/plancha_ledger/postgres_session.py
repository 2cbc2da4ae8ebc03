"""Sessions with a PostgreSQL server, and the advisory locks that they hold."""

import hashlib
import os
import socket
from typing import Any
from urllib.parse import urlsplit

import asyncpg

CONNECT_S = 4.0
COMMAND_S = 30.0
SETTINGS = {
    "default_transaction_isolation": "read committed",  # who takes over sees what it has waited for
    # A server that nobody answers any more lets go of our lock after half a minute.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
}
FREE_GHOST = """SELECT pg_terminate_backend(pid) FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND pid = $1
    AND ((classid::bigint << 32) | objid::bigint) = $2"""


def lock_number(name: str) -> int:
    """The advisory lock of a writer's name: 64 bits, signed."""
    digest = hashlib.sha256(b"plancha ledger " + name.encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


async def connect(dsn: str, writer: str) -> Any:
    """A session in which what is committed is durable. Raises what asyncpg raises."""
    name = f"plancha {writer} {os.getpid()} {socket.gethostname()}"[:63]
    settings = {**SETTINGS, "application_name": name}
    db = await asyncpg.connect(
        dsn, timeout=CONNECT_S, command_timeout=COMMAND_S, server_settings=settings
    )
    try:
        if await db.fetchval("SHOW synchronous_commit") == "off":
            await db.execute("SET synchronous_commit = on")
    except BaseException:
        db.terminate()
        raise
    return db


async def free_ghost(db: Any, number: int, session: int) -> None:
    """End the server's side of a connection of ours that is gone, if it still holds the lock."""
    await db.fetchval(FREE_GHOST, session, number)


def shown_dsn(dsn: str) -> str:
    """Host and database alone, for messages."""
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2]
    return f"postgresql://{host}{parts.path}"
