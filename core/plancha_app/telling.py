"""What the operator is told of a start, on stdout, whatever the log level."""

from collections.abc import Callable, Iterator, Sequence

from plancha.contracts import LoadError
from plancha.options import OptionsError
from plancha.plugins import PluginError

Say = Callable[[str], None]

START_ERRORS = (LoadError, OptionsError, PluginError)
"""What keeps a server from starting and is the operator's to put right."""


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


def reasons(group: BaseExceptionGroup[BaseException]) -> Iterator[str]:
    """The text of every error, however deep it lies."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from reasons(error)
        else:
            yield str(error)
