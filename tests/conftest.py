"""What every test may use."""

import os
import shutil
import signal
from collections.abc import Callable
from glob import glob
from pathlib import Path

import pytest
from rich.console import Console

from plancha_engine.model_name import resolve
from plancha_engine.report import ConsoleReport

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has its background jobs, and so all that they start, ignore SIGINT; servers and
    # terminals under test are sent it, as a person's are.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def model_file() -> Path:
    """The default model's GGUF file, fetched once into the user's cache. Mark tests `model`."""
    return resolve("smollm2", ConsoleReport(Console(stderr=True)))


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """Finds a program that a test runs for real, by its name: PostgreSQL's, nginx, promtool, …

    Where it is not installed the test is skipped; CI installs them all, so there it fails.
    """
    places = [os.environ.get("PATH", ""), "/usr/sbin", *glob("/usr/lib/postgresql/*/bin")]

    def find(name: str) -> str:
        path = shutil.which(name, path=os.pathsep.join(places))
        if path is None:
            reason = f"{name} is not installed; .ci/services installs what the tests run"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        return path

    return find
