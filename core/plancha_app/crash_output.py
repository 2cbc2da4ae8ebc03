"""What a process leaves behind when something in it goes wrong: where it was, and no content."""

import logging
import resource
import sys
import threading
from types import TracebackType

import structlog

log = structlog.get_logger()


def keep_content_out() -> None:
    """For the whole process, and core dumps of its children to come.

    Python prints what exceptions say, and arguments of log lines that cannot be written; a core
    dump holds whatever was in memory.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.raiseExceptions = False
    sys.excepthook = _uncaught
    sys.unraisablehook = lambda found: _uncaught(
        found.exc_type, found.exc_value, found.exc_traceback
    )
    threading.excepthook = lambda found: _uncaught(
        found.exc_type, found.exc_value, found.exc_traceback
    )


def _uncaught(
    kind: type[BaseException], error: BaseException | None, traceback: TracebackType | None
) -> None:
    if error is not None and not isinstance(error, SystemExit):
        log.critical("uncaught_exception", exc_info=(kind, error, traceback))
