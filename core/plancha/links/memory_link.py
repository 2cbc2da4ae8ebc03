"""A link within one event loop: two channels, nothing encoded."""

from collections.abc import AsyncIterator

import anyio
import attrs
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from plancha.links.link import LinkLost
from plancha.messages import Downstream, ToGateway, ToWorker, Upstream


@attrs.frozen(eq=False)
class MemoryLink:
    """A `plancha.links.link.Link` for the only gateway of a worker."""

    upstream: MemoryObjectSendStream[Upstream]
    downstream: MemoryObjectReceiveStream[Downstream]

    async def send(self, item: ToWorker, /) -> None:
        """As `Link.send`. A gateway on its own has no other one's questions to answer."""
        assert isinstance(item, Upstream), "there is no other gateway"
        try:
            await self.upstream.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise LinkLost("the worker has ended") from None

    def send_nowait(self, item: ToWorker, /) -> None:
        """As `Link.send_nowait`."""
        assert isinstance(item, Upstream), "there is no other gateway"
        self.upstream.send_nowait(item)

    def __aiter__(self) -> AsyncIterator[ToGateway]:
        return self.downstream.__aiter__()
