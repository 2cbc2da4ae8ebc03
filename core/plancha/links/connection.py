"""One gateway as its worker's end of the socket sees it."""

from collections.abc import Callable, Collection

import anyio
import attrs
import structlog

from plancha.links.link import LinkLost
from plancha.links.message_stream import MessageStream
from plancha.links.shares import connection_of
from plancha.links.wire import WireError
from plancha.messages import Control, Controls, Pause, Resume, Submit, ToGateway

log = structlog.get_logger()

PAUSE_BYTES = 2**20
"""A gateway for which so much waits to be written lags: its sequences are paused."""

DROP_BYTES = 64 * PAUSE_BYTES
"""What its memory may cost the worker at most; then it is cut off and its sequences end."""


@attrs.define(kw_only=True, eq=False)
class Connection:
    """Knows the gateway's streams that are not settled, to pause and to end them without it."""

    number: int
    gateway: str
    messages: MessageStream
    control: Callable[[Control], None]  # tell the worker
    streams: set[int] = attrs.field(factory=set)
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    lagging: bool = False
    paused: set[int] = attrs.field(factory=set)  # by the gateway's own word
    _lags: anyio.Event = attrs.field(factory=anyio.Event)

    def push(self, message: ToGateway | bytes) -> None:
        """Queue a message for it, which may be encoded already. Never waits."""
        if isinstance(message, bytes):
            self.messages.push_encoded(message)
        else:
            try:
                self.messages.push(message)
            except WireError as error:  # what it misses cannot be made good
                self.drop(str(error))
        waiting = self.messages.waiting_bytes
        if waiting > DROP_BYTES:
            self.drop("it takes nothing any more")
        elif waiting > PAUSE_BYTES and not self.lagging:
            self.lagging = True
            log.info("gateway_lags", gateway=self.gateway, bytes=waiting, streams=len(self.streams))
            self._lags.set()
            self._tell(Pause, self.streams)

    def drop(self, reason: str) -> None:
        """Cut it off."""
        log.warning("gateway_dropped", gateway=self.gateway, reason=reason)
        self.scope.cancel()

    async def resume(self) -> None:
        """Task: let its sequences go on once it no longer lags. Raises `LinkLost`."""
        while True:
            await self._lags.wait()
            self._lags = anyio.Event()
            await self.messages.drained()
            self.lagging = False
            self._tell(Resume, self.streams - self.paused)

    def submitted(self, submit: Submit) -> None:
        """It asks for these streams. Raises `LinkLost` when another's are among them, or one that
        runs already.
        """
        if any(connection_of(stream) != self.number for stream in submit.streams):
            raise LinkLost("it numbers streams that are not its own")
        asked = set(submit.streams)
        if len(asked) < len(submit.streams) or not self.streams.isdisjoint(asked):
            raise LinkLost("it gives one number to two streams")
        self.streams.update(submit.streams)
        if self.lagging:
            self._tell(Pause, submit.streams)

    def controlled(self, controls: Controls) -> Controls:
        """What of its controls the worker should hear: about its own streams, and no `Resume`
        while it lags.
        """
        passed: list[Control] = []
        for control in controls.controls:
            if connection_of(control.stream) != self.number:
                continue
            if isinstance(control, Pause):
                if control.stream in self.streams:  # else it ended meanwhile
                    self.paused.add(control.stream)
            elif isinstance(control, Resume):
                self.paused.discard(control.stream)
                if self.lagging:
                    continue
            passed.append(control)
        return Controls(tuple(passed))

    def ended(self, streams: Collection[int]) -> None:
        """These are settled, or were refused: the worker has said its last word about them."""
        self.streams.difference_update(streams)
        self.paused.difference_update(streams)

    def _tell(self, kind: type[Pause | Resume], streams: Collection[int]) -> None:
        for stream in streams:
            self.control(kind(stream))
