"""What is said on a WebSocket, to the client: one JSON object a message, `type` first."""

from collections.abc import Sequence
from typing import Any

import orjson

from plancha.failure import Failure
from plancha.messages import FinishReason
from plancha.record import Record
from plancha.streams.outbox import Delta
from plancha_transports.answers import tokens_of, usage
from plancha_transports.event_stream import opened
from plancha_transports.failures import CANCELLED, late_error_object
from plancha_transports.request_ids import shown_id


def refused(client_id: str | None, failure: Failure) -> bytes:
    """A message that started nothing. `id` is null where it would name a request that runs."""
    return _message({"type": "error", "id": client_id, **late_error_object(failure)})


def cancelled(client_id: str) -> bytes:
    """Cancelled before it was accepted."""
    no_usage = {"input_tokens": 0, "cached_tokens": 0, "output_tokens": 0}
    return _message({"type": "cancelled", "id": client_id, "usage": no_usage})


class SocketEvents:
    """The messages of one request: `queued`, `token` or `tokens`, and exactly one terminal one.

    A reader that keeps up gets `token` messages; one that lags several in one `tokens`. `index`
    counts output tokens from 0. `done` has the text that was held back to the end.
    """

    def __init__(self, client_id: str, record: Record) -> None:
        self._id = client_id
        self._one = opened({"type": "token", "id": client_id}) + b',"index":'
        self._several = opened({"type": "tokens", "id": client_id}) + b',"index":'
        self.record = record
        self._tokens = 0
        self._finish_reason: FinishReason | None = None
        self._rest = ""

    def queued(self) -> bytes:
        """Accepted here; `server_id` is our name for it, as at `/v1/requests/{id}`."""
        return self._about("queued", request_id=shown_id(self.record), model=self.record.model)

    def token(self, token: int, text: str) -> bytes:
        """A message about the new token."""
        index = self._tokens
        self._tokens = index + 1
        return b'%b%d,"token":%d,"text":%b}' % (self._one, index, token, orjson.dumps(text))

    def tokens(self, tokens: Sequence[int], texts: Sequence[str]) -> bytes:
        """The new tokens in one message; b"" when there are none."""
        if len(tokens) == 1:
            return self.token(tokens[0], texts[0])
        if not tokens:
            return b""
        index, self._tokens = self._tokens, self._tokens + len(tokens)
        several = (self._several, index, orjson.dumps(tokens), orjson.dumps("".join(texts)))
        return b'%b%d,"tokens":%b,"text":%b}' % several

    def deltas(self, deltas: list[Delta]) -> bytes:
        """The new tokens in one message; b"" when only the end came."""
        end = deltas[-1]
        if end.token is None:
            self._finish_reason, self._rest = end.finish_reason, end.text
        return self.tokens(*tokens_of(deltas))

    def done(self) -> bytes:
        """Ended well."""
        return self._about(
            "done",
            text=self._rest,
            finish_reason=self._finish_reason,
            usage=usage(self.record),
        )

    def failed(self, failure: Failure) -> bytes:
        """Broke off, or was cancelled."""
        if failure is CANCELLED:
            return self._about("cancelled", usage=usage(self.record))
        return self._about("error", **late_error_object(failure))

    def _about(self, kind: str, **rest: Any) -> bytes:
        return _message({"type": kind, "id": self._id, "server_id": self.record.id, **rest})


def _message(message: dict[str, Any]) -> bytes:
    return orjson.dumps(message)
