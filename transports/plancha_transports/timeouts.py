"""How long a caller is willing to wait for the whole answer: a field of the body, or a header."""

import re

import attrs
from aiohttp import web

from plancha.calls.call import Call
from plancha.failure import invalid
from plancha_transports.fields import check, shown, wrong

TIMEOUT_HEADER = "X-Request-Timeout"
MOST_TIMEOUT_S = 86_400
RIGHT = f"a number of seconds over 0, up to {MOST_TIMEOUT_S}"
DECIMAL = re.compile(r"[0-9]{1,5}(\.[0-9]{1,9})?")


@check(type="number", exclusiveMinimum=0, maximum=MOST_TIMEOUT_S)
def timeout(name: str, value: object) -> float:
    """Seconds."""
    if (type(value) is not int and type(value) is not float) or not 0 < value <= MOST_TIMEOUT_S:
        raise wrong(name, value, RIGHT)
    return value


def timed_by(request: web.Request, call: Call) -> Call:
    """The call with the header's timeout, unless its body has one; the header is checked anyway.

    Raises `RequestFailed` naming the header.
    """
    given = request.headers.getall(TIMEOUT_HEADER, [])
    if not given:
        return call
    text = ", ".join(given).strip()
    seconds = float(text) if DECIMAL.fullmatch(text) else 0.0
    if not 0 < seconds <= MOST_TIMEOUT_S:
        message = f"The header {TIMEOUT_HEADER} is {shown(text)}; it must be {RIGHT}."
        raise invalid(TIMEOUT_HEADER, message)
    return call if call.timeout_s is not None else attrs.evolve(call, timeout_s=seconds)
