"""Two names for a request: our own id, unique, and the label a client may give it."""

from aiohttp import web

from plancha.record import Record
from plancha_transports.fields import LABEL

ID_HEADER = "Plancha-Request-Id"
LABEL_HEADER = "X-Request-Id"

RECORD = web.RequestKey("record", Record)
"""Set by a door as soon as its request has been accepted."""


def header_label(request: web.Request) -> str | None:
    """The client's X-Request-Id, if it is one that can be stored and echoed."""
    label = request.headers.get(LABEL_HEADER)
    return label if label is not None and LABEL.fullmatch(label) else None


def shown_id(record: Record) -> str:
    """What the client calls the request: its label, or our id when it gave none."""
    return record.label or record.id


async def name_response(request: web.Request, response: web.StreamResponse) -> None:
    """Signal: put both names on every response."""
    record = request.get(RECORD)
    if record is not None:
        response.headers[ID_HEADER] = record.id
    label = shown_id(record) if record is not None else header_label(request)
    if label is not None:
        response.headers[LABEL_HEADER] = label
