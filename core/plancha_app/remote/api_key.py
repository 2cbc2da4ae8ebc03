"""The key that a request carries: from a file or the environment, never from the command line."""

import os
from collections.abc import Mapping
from pathlib import Path

from plancha_app.complaints import Mistake


def key_in(path: Path) -> str:
    """The one word that the file holds. Raises `Mistake`."""
    try:
        key = path.read_text("ascii").strip()
    except OSError as error:
        raise Mistake(f"{path}: the key cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Mistake(f"{path}: holds no key, which is of ASCII characters") from None
    if len(key.split()) != 1 or not key.isprintable():
        raise Mistake(f"{path}: holds no key, which is one word")
    return key


def headers(path: Path | None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """With the file's key, else with OPENAI_API_KEY's, as the `openai` client has it."""
    key = key_in(path) if path is not None else environment.get("OPENAI_API_KEY", "").strip()
    if not key:
        return {}
    if not (key.isascii() and key.isprintable()):
        raise Mistake("OPENAI_API_KEY holds characters that no key has")
    return {"Authorization": f"Bearer {key}"}
