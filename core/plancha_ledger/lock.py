"""One writer at a time per SQLite file: a lock that the system takes back when its holder dies."""

import fcntl
import os
from pathlib import Path

from plancha.contracts import LoadError


class WriterLock:
    """Held from the constructor on until `release`, or until the process has gone.

    The file stays when the lock is given back: to delete it would let two hold "the" lock.
    Raises `LoadError` that says who holds it.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise LoadError(f"{path}: the lock cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise LoadError(
                f"{path}: another server (pid {holder or 'unknown'}) writes this ledger; "
                "stop it first, or give this one another path in [ledger]"
            ) from None
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError:  # a full disk: the name is a courtesy, the lock holds without
            pass

    def release(self) -> None:
        """Let the next one have it."""
        os.close(self._descriptor)
