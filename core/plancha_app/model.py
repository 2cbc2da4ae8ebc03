"""A model as the operator named it: where its checkpoint is, and its tokenizer."""

from collections.abc import Callable
from pathlib import Path

from plancha.contracts import Text


def open_model(name: str, report: Callable[[str], None]) -> tuple[Path, Text]:
    """Fetch what is not in the cache yet, then read the tokenizer. Raises `LoadError`."""
    raise NotImplementedError


def fetch(name: str) -> Path:
    """The checkpoint of a model, downloaded if need be. Raises `LoadError`."""
    raise NotImplementedError
