"""What a gateway finds out about a request: from itself, another gateway, or the worker."""

from collections.abc import Callable

from plancha.failure import Failure, RequestFailed
from plancha.links.asking import NO_ANSWER, Asking
from plancha.links.link import Sender
from plancha.links.request_id import gateway_of, is_request_id
from plancha.messages import Answer, Ask, GatewayTopic, Topic, WorkerTopic
from plancha.record import Record

NOT_FOUND = Failure("not_found", "No such request.", None, "request_not_found")


class Inquiries:
    """Of the gateway `name`, which answers what it knows itself by `own`."""

    def __init__(self, name: str, own: Callable[[Ask], Record | None]) -> None:
        self._name = name
        self._own = own
        self._asking = Asking()
        self._upstream: Sender | None = None
        self._shared = False

    def connect(self, upstream: Sender, *, shared: bool) -> None:
        """There is a worker to ask. `shared`: and other gateways, by way of it."""
        self._upstream, self._shared = upstream, shared

    def disconnect(self) -> None:
        """It is gone, and no answer will come any more."""
        self._upstream = None
        self._asking.give_up()

    def answered(self, answer: Answer) -> None:
        """Somebody has said what they know."""
        self._asking.answered(answer)

    async def find(
        self, request_id: str, tenant: str, *, cancel: bool = False, any_tenant: bool = False
    ) -> Record:
        """What is known of a request, whichever gateway of the worker answers it.

        With `cancel` it is ended, if it has not been. Another tenant's is as unknown as one that
        never was, but to whoever may ask about `any_tenant`'s. What no gateway knows, or none to
        its end, is asked of the ledger. A record that is not this gateway's own is a copy.

        Raises `RequestFailed` when nothing is known, and when there is no answer.
        """
        if not is_request_id(request_id):
            raise RequestFailed(NOT_FOUND)
        known = await self._known(request_id, tenant, cancel=cancel, any_tenant=any_tenant)
        if known is not None and (known.state != "done" or known.finished is not None):
            return known
        try:
            answer = await self.ask_worker("usage", request_id, tenant, any_tenant=any_tenant)
        except RequestFailed:
            if known is None:
                raise
            return known
        record = answer.record or known
        if record is None:
            raise RequestFailed(NOT_FOUND)
        return record

    async def ask_worker(
        self,
        topic: WorkerTopic,
        request_id: str = "",
        tenant: str = "",
        *,
        any_tenant: bool = False,
    ) -> Answer:
        """What the worker knows of a topic. Raises `RequestFailed` when there is no answer."""
        return await self._ask(topic, request_id, tenant, any_tenant=any_tenant)

    async def _known(
        self, request_id: str, tenant: str, *, cancel: bool, any_tenant: bool
    ) -> Record | None:
        """What this gateway knows, or the one that the id names."""
        topic: GatewayTopic = "cancel" if cancel else "record"
        if not self._shared or gateway_of(request_id) == self._name:
            return self._own(Ask(0, request_id, tenant, topic, any_tenant))
        answer = await self._ask(topic, request_id, tenant, any_tenant=any_tenant)
        return answer.record

    async def _ask(self, topic: Topic, request_id: str, tenant: str, *, any_tenant: bool) -> Answer:
        if self._upstream is None:  # and so no way to anybody
            raise RequestFailed(NO_ANSWER)
        return await self._asking.ask(
            self._upstream, topic, request_id, tenant, any_tenant=any_tenant
        )
