"""Logging of the process: structlog for us and for libraries, to stderr.

Never a prompt, an output or a secret: tracebacks come without the values of variables and without
what the exceptions say, whoever would have written them.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor

from plancha.options import is_secret
from plancha_app import tracebacks

HIDDEN = "…"


def configure(
    level: str, form: Literal["auto", "console", "json"], process: str | None = None
) -> None:
    """Send every log line of the process to stderr; "auto" is console on a terminal, else JSON.

    With `process` each line says that this one, of several, wrote it.
    """
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        _without_values,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if console else "iso", utc=not console),
    ]
    if process is not None:
        shared.append(_written_by(process))
    if not console:
        shared.append(structlog.processors.ExceptionRenderer(_traceback))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _renderer(console),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


def _written_by(process: str) -> Processor:
    """A processor and no context variable, since threads would not have that."""

    def add(logger: Any, method: str, event: EventDict) -> EventDict:
        return {**event, "process": process}

    return add


def _without_values(logger: Any, method: str, event: EventDict) -> EventDict:
    """asyncio shows callbacks, tasks and their exceptions as Python does, with what they hold."""
    record = event.get("_record")
    if record is not None and record.name == "asyncio":
        return {**event, "event": re.split(r"[\n<(\[{'\"=]", str(event["event"]))[0].rstrip()}
    return event


def _traceback(exc_info: ExcInfo) -> str:
    return tracebacks.told(exc_info[1])


def _print_traceback(out: TextIO, exc_info: ExcInfo) -> None:
    out.write(f"\n{_traceback(exc_info)}")


def set_level(level: str) -> None:
    """From now on, for the whole process."""
    logging.getLogger().setLevel(level.upper())


def _renderer(console: bool) -> Processor:
    if console:
        return structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=_print_traceback
        )
    return structlog.processors.JSONRenderer(default=str)


def hidden(value: Any, key: str = "") -> Any:
    """A configuration as it may be logged: no text under a secret name, no password in a URL."""
    if isinstance(value, Mapping):
        return {
            name: hidden(inner, name if is_secret(name) else key) for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [hidden(inner, key) for inner in value]
    if isinstance(value, str):
        return HIDDEN if is_secret(key) else re.sub(r"(?<=://)[^/\s]+(?=@)", HIDDEN, value)
    return value
