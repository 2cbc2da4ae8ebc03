"""The folder where fetched models are kept. What has its final name there is whole, always."""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from plancha.contracts import LoadError
from plancha_engine.report import Report

_CHUNK_BYTES = 1 << 20


def models_folder() -> Path:
    """`$PLANCHA_CACHE/models`, else `plancha/models` in the user's cache folder (XDG)."""
    if own := os.environ.get("PLANCHA_CACHE"):
        return Path(own).expanduser() / "models"
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(user).expanduser() / "plancha" / "models"


@contextmanager
def installing(name: str, report: Report) -> Iterator[Path]:
    """An empty folder to prepare `name` in, on the cache's disk; gone afterwards.

    One process at a time is inside for one name; others wait, and must look again whether they
    still have anything to do. What a killed process left is removed. Raises `LoadError` when the
    disk is full or the cache cannot be written.
    """
    folder = models_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f".{name}.lock", report):
            for leftover in folder.glob(f".{name}.part-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=f".{name}.part-", dir=folder) as staging:
                yield Path(staging)
    except OSError as error:
        raise cache_error(error, folder) from error


@contextmanager
def _locked(path: Path, report: Report) -> Iterator[None]:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report.say("another process is fetching this model: waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def cache_error(error: OSError, folder: Path) -> LoadError:
    """What the operator can do about a cache that cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        why = "the disk is full"
    else:
        why = error.strerror or str(error)
    return LoadError(
        f"{error.filename or folder}: {why}; make room, or set PLANCHA_CACHE to a folder"
        " that can be written and has space"
    )


def require_space(folder: Path, needed: int) -> None:
    """Raises `LoadError` unless `needed` bytes are free where `folder` is."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise LoadError(
            f"{folder}: {free / 1e6:.0f} MB free, {needed / 1e6:.0f} MB needed;"
            " make room, or set PLANCHA_CACHE to a folder that has space"
        )


def sha256_of(path: Path) -> str:
    """Hexadecimal, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_durably(source: IO[bytes], target: Path) -> str:
    """Write `source` to a new file that is on the disk when this returns; its SHA-256 in hex."""
    digest = hashlib.sha256()
    with target.open("xb") as file:
        while chunk := source.read(_CHUNK_BYTES):
            file.write(chunk)
            digest.update(chunk)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def put_in_place(prepared: Path, final: Path) -> None:
    """Give a finished file its name, replacing what had it; a crash leaves the old or the new."""
    prepared.replace(final)
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
