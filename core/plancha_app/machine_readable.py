"""JSON for scripts: one object or list, on one line of stdout."""

from typing import Any

import orjson


def show_json(found: Any) -> None:
    """Print it."""
    print(orjson.dumps(found).decode())
