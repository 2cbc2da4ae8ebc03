"""A model as the operator named it: where its checkpoint is, and its tokenizer."""

from pathlib import Path

from plancha.contracts import Text
from plancha_engine.model_name import resolve
from plancha_engine.report import Report
from plancha_text.text import from_path


def open_model(name: str, report: Report) -> tuple[Path, Text]:
    """Fetch what is not in the cache yet, then read the tokenizer. Raises `LoadError`."""
    path = resolve(name, report)
    return path, from_path(path)
