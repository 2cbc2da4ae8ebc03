"""What the operator is told of a start, on stdout, whatever the log level."""

import signal
from collections.abc import Callable, Iterator, Sequence

from plancha.contracts import LoadError
from plancha.options import OptionsError
from plancha.plugins import PluginError

Say = Callable[[str], None]

START_ERRORS = (LoadError, OptionsError, PluginError)
"""What keeps a server from starting and is the operator's to put right."""

SIGNAL_NAMES = {each.value: each.name for each in signal.Signals}


def greet(say: Say, model: str, addresses: Sequence[str], *, needs_key: bool) -> None:
    """Where to ask, and how."""
    say(f"{model} is served at {' and '.join(addresses)}")
    http = next((each for each in addresses if each.startswith("http")), None)
    if http is not None:
        key = "-H 'Authorization: Bearer YOUR_KEY' " if needs_key else ""
        say(
            f"try: curl -N {http}/generate {key}-H 'Content-Type: application/json' "
            """-d '{"prompt": "Once upon a time"}'"""
        )


def ending(code: int | None) -> str:
    """How a process ended, by its exit code as `subprocess` has it; None: it never began."""
    if code is None:
        return "could not be started"
    if code >= 0:
        return f"ended with exit code {code}"
    name = SIGNAL_NAMES.get(-code, f"signal {-code}")
    memory = ", as the system does when memory runs out" if -code == signal.SIGKILL else ""
    return f"was killed by {name}{memory}"


def reasons(group: BaseExceptionGroup[BaseException]) -> Iterator[str]:
    """The text of every error, however deep it lies."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from reasons(error)
        else:
            yield str(error)
