"""Requests as spans of OpenTelemetry, sent by OTLP over HTTP. Imported only where it is wanted."""

import time
from collections.abc import Iterator, Sequence

import attrs
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from plancha.calls.call import Call
from plancha.failure import Failure
from plancha.messages import Phases
from plancha.record import Record
from plancha.streams.outbox import Stream

EXPORT_TIMEOUT_S = 5
PROPAGATOR = TraceContextTextMapPropagator()


def provider_of(endpoint: str, ratio: float, instance: str) -> TracerProvider:
    """Sends spans in batches, on a thread of its own. `shutdown` it to send the last."""
    provider = TracerProvider(
        resource=Resource.create({SERVICE_NAME: "plancha", SERVICE_INSTANCE_ID: instance}),
        sampler=ParentBased(TraceIdRatioBased(ratio)),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


class OpenTelemetrySpans:
    """A `plancha.spans.Spans`. Names of attributes are the conventions' where they have one.

    OpenTelemetry's semantic conventions for generative AI: https://opentelemetry.io/docs/specs/semconv/gen-ai/
    """

    def __init__(self, provider: TracerProvider, model: str) -> None:
        self._tracer = provider.get_tracer("plancha")
        self._model = model

    def begin(self, call: Call, request_id: str) -> "RequestSpan":
        """As `Spans.begin`; a `traceparent` that is none is as good as none."""
        carrier = {} if call.traceparent is None else {"traceparent": call.traceparent}
        began_ns = time.time_ns()
        span = self._tracer.start_span(
            "generate",
            PROPAGATOR.extract(carrier),
            SpanKind.SERVER,
            {
                "gen_ai.request.model": self._model,
                "gen_ai.response.id": request_id,
                "plancha.tenant": call.tenant,
            },
            start_time=began_ns,
        )
        return RequestSpan(self._tracer, span, began_ns)


@attrs.define
class RequestSpan:
    """A `plancha.spans.Span`, and spans inside it for each of its phases.

    They last as long as the worker's monotonic clock said; the wall clock is asked once, when the
    request begins, so that no step of it makes a span of negative length.
    """

    _tracer: Tracer
    _span: Span
    _began_ns: int  # Unix time
    _monotonic_s: float = attrs.field(factory=time.monotonic)

    def ended(self, record: Record, streams: Sequence[Stream]) -> None:
        """As `plancha.spans.Span`."""
        if not self._span.is_recording():
            return
        ends = [stream.finished for stream in streams if stream.finished is not None]
        self._span.set_attributes(
            {
                "gen_ai.usage.input_tokens": record.input_tokens,
                "gen_ai.usage.output_tokens": record.output_tokens,
                "gen_ai.response.finish_reasons": [end.reason for end in ends],
                "plancha.cached_tokens": record.cached_tokens,
                "plancha.outputs": len(streams),
                "plancha.outcome": record.outcome or "",
            }
        )
        failure = next((end.failure for end in ends if end.failure is not None), None)
        if record.outcome == "failed":
            self._fail(failure)
        last_s = 0.0
        for name, began_s, ended_s in _phases([end.phases for end in ends]):
            self._phase(name, began_s, ended_s)
            last_s = ended_s
        self._end(last_s)

    def refused(self, failure: Failure) -> None:
        """As `plancha.spans.Span`."""
        self._span.set_attribute("plancha.outcome", "refused")
        self._fail(failure)
        self._end()

    def _fail(self, failure: Failure | None) -> None:
        """By its code: a message may quote what somebody sent."""
        code = "unknown" if failure is None else failure.code or failure.kind
        self._span.set_attribute("error.type", code)
        self._span.set_status(Status(StatusCode.ERROR, code))

    def _phase(self, name: str, began_s: float, ended_s: float) -> None:
        context = set_span_in_context(self._span)
        span = self._tracer.start_span(name, context, start_time=self._at(began_s))
        span.end(self._at(ended_s))

    def _end(self, at_least_s: float = 0.0) -> None:
        self._span.end(self._at(max(at_least_s, time.monotonic() - self._monotonic_s)))

    def _at(self, seconds: float) -> int:
        """Unix nanoseconds, so long after the beginning."""
        return self._began_ns + int(seconds * 1e9)


def _phases(of_streams: Sequence[Phases]) -> Iterator[tuple[str, float, float]]:
    """A request's: until its first output is in the batch, has a token, until the last ends."""
    if not of_streams:
        return
    joined_s = min(each.queued_s for each in of_streams)
    token_s = min(each.queued_s + each.prefill_s for each in of_streams)
    end_s = max(each.queued_s + each.prefill_s + each.decode_s for each in of_streams)
    yield "queued", 0.0, joined_s
    if any(each.prefill_s for each in of_streams):
        yield "prefill", joined_s, token_s
    if any(each.decode_s for each in of_streams):
        yield "decode", token_s, end_s
