"""The client's half: text in, text out, and the state of every request this process answers.

A gateway tokenises, submits ids to the worker, and turns the ids that come back into text. A frame
reaches a client's outbox as a list append and one wake-up; detokenising and stop strings happen in
the client's own task, so a slow one holds up nobody.
"""

from collections import Counter, OrderedDict
from collections.abc import AsyncIterable, Callable
from contextlib import suppress
from itertools import count
from typing import Literal, Protocol

import anyio
import anyio.to_thread
import structlog

from plancha.access import Access
from plancha.calls.call import Call
from plancha.calls.grammar_check import GrammarCheck
from plancha.calls.prompts import Prompts, shortened
from plancha.calls.submission import request_of, streams_of
from plancha.contracts import Text
from plancha.failure import Failure, RequestFailed
from plancha.links.inquiries import NOT_FOUND, Inquiries
from plancha.links.link import LinkLost, Sender
from plancha.links.outgoing import Outgoing
from plancha.links.request_id import gateway_name, new_request_id
from plancha.messages import (
    Answer,
    Ask,
    Frame,
    InferenceRequest,
    Load,
    Rejected,
    Reload,
    Settled,
    Submit,
    ToGateway,
)
from plancha.record import Outcome, Record
from plancha.scraping import Scraping
from plancha.spans import Spans
from plancha.stall_watch import StallWatch
from plancha.startup import STARTED, STARTING
from plancha.streams.generation import Generation
from plancha.streams.outboxes import Outboxes
from plancha.streams.overdue import Overdue, patience
from plancha.streams.transcript import Transcript
from plancha.texts import NoTexts, Texts

log = structlog.get_logger()

State = Literal["loading", "ready", "draining", "failed"]

REMEMBERED_REQUESTS = 10_000

WORKER_LOST = Failure(
    "unavailable", "The worker that computed this answer is gone; try again.", None, "worker_lost"
)


class Gateway:
    """Answers calls with generations. Made before the model is loaded; `open` makes it ready."""

    def __init__(
        self,
        model: str,
        public_prefixes: tuple[str, ...] = (),
        access: Access | None = None,
        *,
        texts: Texts | None = None,
        step_deadline_s: float = 0.0,
    ) -> None:
        self.model = model
        self.name = gateway_name()
        self.access = access or Access()
        self.texts = texts or NoTexts()
        self._reload: Reload | None = None  # the latest
        self._public_texts = public_prefixes  # raw prompts whose cached beginnings all may share
        self.state: State = "loading"
        self.reason = "loading"
        self.stage = STARTING  # of the worker's start; of interest while it is loading
        self.scraping = Scraping()
        self.spans: Spans | None = None  # where requests are traced
        self.outboxes = Outboxes(self._ended)
        self.outcomes: Counter[Outcome] = Counter()  # of requests that have ended
        self.load: Load | None = None  # the worker's, after its latest step
        self._prompts: Prompts | None = None
        self._upstream: Sender | None = None
        self._numbers = count()
        self._records: OrderedDict[str, Record] = OrderedDict()  # the running and the latest ended
        self._outgoing = Outgoing()
        self.inquiries = Inquiries(self.name, self._asked)
        self._grammars = GrammarCheck()
        self._watch = StallWatch(step_deadline_s)
        self._overdue = Overdue(self.outboxes.running)

    def open(
        self,
        text: Text,
        upstream: Sender,
        context_length: int,
        *,
        first_stream: int = 0,
        shared: bool = False,
    ) -> None:
        """The worker behind `upstream` is ready to take requests for `text`'s model.

        Streams are numbered from `first_stream` on. `shared`: other gateways have this worker too.
        """
        self._numbers = count(first_stream)
        self._upstream = upstream
        self.inquiries.connect(upstream, shared=shared)
        public = tuple(text.encode(prefix) for prefix in self._public_texts)
        self._prompts = Prompts(text=text, context_length=context_length, public=public)
        if self._reload is not None:
            upstream.send_nowait(self._reload)  # it was made from what the file said before
        self.stage = STARTED
        if self.state != "draining":
            self.state, self.reason = "ready", ""

    def close(self) -> None:
        """The worker is gone with all it computed: end what runs; take nothing until `open`."""
        self._upstream = None
        self.load = None
        self._outgoing = Outgoing()  # so that what is left over of old streams reaches no new one
        if self.state == "ready":
            self.state, self.reason = "loading", "the worker is being started again"
            self.stage = STARTING
        for generation in list(self.outboxes.running.values()):
            generation.fail(WORKER_LOST)
            self.outboxes.forget(generation)
            _break_off(generation.record)
            self._ended(generation)
        self.inquiries.disconnect()

    async def reload(self, access: Access, reload: Reload) -> None:
        """The worker hears of `reload` before anybody submits whom only the new access knows."""
        self._reload = reload
        if self._upstream is not None:
            with suppress(LinkLost):  # the next worker hears of it first of all
                await self._upstream.send(reload)
        self.access = access

    def refuse(self, state: Literal["draining", "failed"], reason: str) -> None:
        """Take no new requests from now on; `reason` is shown to those who ask."""
        self.state, self.reason = state, reason

    @property
    def stalled(self) -> bool:
        """Whether somebody has waited too long for the worker's next step."""
        return self._watch.stalled

    @property
    def ledger_writable(self) -> bool:
        """Whether usage can be recorded, by the worker's latest word; if not, it refuses all."""
        return self.load is None or self.load.ledger_writable

    @property
    def running(self) -> int:
        """Requests accepted here that have not ended."""
        return len(self.outboxes.running)

    def fail_all(self, failure: Failure) -> None:
        """End every request that is still running with `failure`."""
        for generation in self.outboxes.running.values():
            generation.fail(failure)

    def fail_queued(self, failure: Failure) -> None:
        """End every request that still waits for its first step with `failure`."""
        for generation in self.outboxes.running.values():
            if generation.record.state == "queued":
                generation.fail(failure)

    def models(self, tenant: str) -> tuple[str, ...]:
        """What this tenant can ask now."""
        usable = self.state == "ready" and self.access.may_use(tenant, self.model)
        return (self.model,) if usable else ()

    def record(self, request_id: str, tenant: str, *, any_tenant: bool = False) -> Record:
        """What is known of a request. Another tenant's is as unknown as one that never was."""
        record = self._records.get(request_id)
        if record is None or not (any_tenant or record.tenant == tenant):
            raise RequestFailed(NOT_FOUND)
        return record

    def cancel(self, request_id: str, tenant: str) -> Record:
        """Cancel a request by its id; ended already: nothing to do. Raises as `record` does."""
        record = self.record(request_id, tenant)
        if request_id in self.outboxes.running:
            self.outboxes.running[request_id].cancel()
        return record

    @property
    def text(self) -> Text:
        """The loaded model's, to show single tokens. Raises `RequestFailed` when not ready."""
        return self._ready()[0].text

    async def generate(self, call: Call) -> Generation:
        """Tokenise and submit. Use the result as an async context manager, and iterate it.

        Raises `RequestFailed` for what can be told at once: not ready, unknown model, bad ids, text
        that cannot be encoded, a schema that cannot be followed. Whether it fits is the worker's
        word and raises on iteration.
        """
        prompts, _ = self._ready()
        self._check_model(call)
        prompts.check_ids(call.sampling)
        if call.grammar is not None:
            await self._grammars.check(call.grammar, call.sampling, call.tenant)
        encoded = await prompts.encode(call)
        prompts, upstream = self._ready()  # it may have begun to drain meanwhile
        request = request_of(
            call, encoded, prompts, request_id=new_request_id(self.name), model=self.model
        )
        generation = self._accept(call, request, prompts.text)
        submit = Submit(request, tuple(stream.number for stream in generation.streams))
        try:
            with patience(call.timeout_s):
                await upstream.send(submit)
        except BaseException as error:
            generation.cancel()  # the caller's end may land when the worker has it already
            self.outboxes.forget(generation)
            self._records.pop(generation.record.id, None)
            if isinstance(error, LinkLost):
                raise RequestFailed(WORKER_LOST) from None
            raise
        self._overdue.watch(generation, call.timeout_s, anyio.current_time())
        return generation

    async def fanout(self, messages: AsyncIterable[ToGateway]) -> None:
        """Task: bring what the worker sends to the outboxes. Ends with `messages`."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.outboxes.waking)
            tasks.start_soon(self._overdue.looking)
            if self._watch.interval_s:
                tasks.start_soon(self._watching)
            async for message in messages:
                self._take(message)
            tasks.cancel_scope.cancel()
        self.outboxes.wake_all()

    async def control(self) -> None:
        """Task: tell the worker what clients did, however fast they do it."""
        outgoing = self._outgoing
        while True:
            for message in await outgoing.take():
                if self._upstream is not None:
                    await self._upstream.send(message)

    async def _watching(self) -> None:
        """Task: notice when the worker goes on holding its link and does nothing."""
        while True:
            stalled_before = self.stalled
            steps = self.load.steps if self.load is not None else None
            self._watch.look(steps, self._waited_for(), anyio.current_time())
            if self.stalled and not stalled_before:
                log.error("engine_stalled", running=self.running)
            elif stalled_before and not self.stalled:
                log.info("engine_goes_on")
            await anyio.sleep(self._watch.interval_s)

    def _waited_for(self) -> bool:
        """Whether a step is due: somebody is in the batch, whoever's gateway that is, or some
        stream here waits for its next token. A paused one does not.
        """
        return (self.load is not None and self.load.running > 0) or any(
            stream.finished is None and not stream.closed and not stream.paused_at
            for generation in self.outboxes.running.values()
            for stream in generation.streams
        )

    def _ended(self, generation: Generation) -> None:
        """Its record is closed."""
        outcome = generation.record.outcome
        if outcome is not None:
            self.outcomes[outcome] += 1
        if generation.span is not None:
            generation.span.ended(generation.record, generation.streams)

    def _asked(self, ask: Ask) -> Record | None:
        try:
            if ask.topic == "cancel":
                return self.cancel(ask.request_id, ask.tenant)
            return self.record(ask.request_id, ask.tenant, any_tenant=ask.any_tenant)
        except RequestFailed:
            return None

    def _take(self, message: ToGateway) -> None:
        match message:
            case Frame():
                self.load = message.load
                self.outboxes.deliver(message)
            case Settled():
                self.outboxes.settle(message)
            case Rejected():
                self._refused(message)
            case Ask():
                self._outgoing.answer(Answer(message.number, self._asked(message)))
            case Answer():
                self.inquiries.answered(message)

    def _ready(self) -> tuple[Prompts, Sender]:
        if self.state != "ready" or self._prompts is None or self._upstream is None:
            message = f"The server is not taking requests: {self.reason}."
            raise RequestFailed(Failure("unavailable", message, None, self.state))
        return self._prompts, self._upstream

    def _check_model(self, call: Call) -> None:
        """A model that the tenant may not use is told apart from none by nothing."""
        models = self.models(call.tenant)
        if call.model in models or (call.model is None and models):
            return
        here = f"this server has {' or '.join(map(repr, models)) or 'none for you'}."
        if call.model is None:
            message = f"No model was named; {here}"
        else:
            message = f"The model {shortened(call.model)} does not exist; {here}"
        raise RequestFailed(Failure("not_found", message, "model", "model_not_found"))

    def _accept(self, call: Call, request: InferenceRequest, text: Text) -> Generation:
        transcript = Transcript(call, self.texts.keep) if self.texts.keeps(call.tenant) else None
        streams = streams_of(call, request, text, self._numbers, plain=transcript is None)
        record = Record(
            id=request.id,
            label=call.label,
            tenant=call.tenant,
            model=self.model,
            created=int(request.created_s),
            input_tokens=sum(int(prompt.size) for prompt in request.prompts),
        )
        span = None if self.spans is None else self.spans.begin(call, request.id)
        generation = Generation(record, streams, self._outgoing.control, transcript, span)
        self.outboxes.add(generation)
        self._records[record.id] = record
        if len(self._records) > REMEMBERED_REQUESTS:
            self._forget_an_ended_one()
        return generation

    def _forget_an_ended_one(self) -> None:
        for request_id, record in self._records.items():
            if record.state == "done":
                del self._records[request_id]
                return

    def _refused(self, rejected: Rejected) -> None:
        generation = self.outboxes.refuse(rejected)
        if generation is not None:
            generation.transcript = None  # as if it had never been asked
            if generation.span is not None:
                generation.span.refused(rejected.failure)
            self._records.pop(generation.record.id, None)


class Transport(Protocol):
    """A door, as a plugin. `run` serves until cancelled.

    With an attribute `loopback_only` that is true it may be open to callers without a key, since
    only this machine reaches it; otherwise the operator has to say so. Who calls is for
    `gateway.access` to tell, from the key.

    Several gateway processes can have it if it has an attribute `listens_at`, a host and a port
    that are options of these names, and shares that port where `Site.shared_ports` says so.
    """

    async def run(self, gateway: Gateway, started: Callable[[str], None]) -> None:
        """Listen, tell `started` the address once it is bound, and answer with `gateway`."""
        ...


def _break_off(record: Record) -> None:
    """The worker cannot say what it computed; never more is on record than is known."""
    if record.state == "queued":
        record.input_tokens = 0
    record.state, record.outcome = "done", "failed"
