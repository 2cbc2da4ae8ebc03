"""What every test may use."""

from pathlib import Path

import pytest
from rich.console import Console

from plancha_engine.model_name import resolve
from plancha_engine.report import ConsoleReport


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def model_file() -> Path:
    """The default model's GGUF file, fetched once into the user's cache. Mark tests `model`."""
    return resolve("smollm2", ConsoleReport(Console(stderr=True)))
