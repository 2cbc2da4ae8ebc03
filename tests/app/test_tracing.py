"""Requests as OpenTelemetry sees them: by its own SDK, and by a receiver of OTLP."""

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from aiohttp import ClientSession, web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from plancha.calls.call import Call
from plancha.contracts import Geometry
from plancha.failure import RequestFailed
from plancha.kernel import Kernel
from plancha.options import OptionsError, structure
from plancha.testing.client import collect
from plancha.testing.embedded import embedded
from plancha.testing.executors import ScriptExecutor
from plancha.testing.gate import GatedExecutor
from plancha_app.open_telemetry import OpenTelemetrySpans
from plancha_app.tracing import traced
from plancha_app.tracing_table import TracingTable, tracing_problems
from plancha_text.byte_text import byte_text
from plancha_transports.http import HttpTransport
from plancha_transports.options import HttpOptions

GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(257,))
CANARY = "my-secret-prompt"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def says(text: str, **fields: Any) -> ScriptExecutor:
    return ScriptExecutor(lambda prompt: (*text.encode(), 257), GEOMETRY, **fields)


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    yield exporter
    exporter.shutdown()


def watch(kernel: Kernel, exporter: InMemorySpanExporter) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    kernel.gateway.spans = OpenTelemetrySpans(provider, "tiny")


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert len(spans) == len(exporter.get_finished_spans())
    return spans


def nanoseconds(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None and span.end_time is not None
    assert span.start_time <= span.end_time
    return span.start_time, span.end_time


async def test_a_request_is_a_span_with_its_phases_inside(exporter: InMemorySpanExporter) -> None:
    async with embedded(says("Hello"), byte_text()) as kernel:
        watch(kernel, exporter)
        call = Call(model="tiny", prompts=(CANARY,), tenant="acme", label=CANARY)
        text, _, generation = await collect(kernel.gateway, call)
        assert text == "Hello"
    spans = by_name(exporter)
    assert set(spans) == {"generate", "queued", "prefill", "decode"}
    whole = spans["generate"]
    assert whole.parent is None
    for name in ("queued", "prefill", "decode"):
        parent = spans[name].parent
        assert parent is not None and parent.span_id == whole.context.span_id
    began, ended = nanoseconds(whole)
    times = [nanoseconds(spans[name]) for name in ("queued", "prefill", "decode")]
    assert times[0][0] == began and times[2][1] <= ended
    assert times[0][1] == times[1][0] and times[1][1] == times[2][0]
    assert dict(attributes(whole)) == {
        "gen_ai.request.model": "tiny",
        "gen_ai.response.id": generation.record.id,
        "gen_ai.usage.input_tokens": len(CANARY),
        "gen_ai.usage.output_tokens": 6,
        "gen_ai.response.finish_reasons": ("stop",),
        "plancha.tenant": "acme",
        "plancha.cached_tokens": 0,
        "plancha.outputs": 1,
        "plancha.outcome": "completed",
    }
    told = "".join(span.to_json() for span in exporter.get_finished_spans())
    assert CANARY not in told and "Hello" not in told


async def test_the_callers_span_is_the_parent_and_decides(exporter: InMemorySpanExporter) -> None:
    async with embedded(says("Hello"), byte_text()) as kernel:
        watch(kernel, exporter)
        for flags in ("01", "00"):  # sampled, and not
            parent = f"00-{TRACE}-{PARENT}-{flags}"
            await collect(kernel.gateway, Call(model="tiny", prompts=("x",), traceparent=parent))
    whole = by_name(exporter)["generate"]
    assert whole.parent is not None
    assert f"{whole.context.trace_id:032x}" == TRACE
    assert f"{whole.parent.span_id:016x}" == PARENT


@pytest.mark.parametrize("nonsense", ["", "00-0-0-01", f"00-{TRACE}-{PARENT}", "\x00", "x" * 8000])
async def test_a_parent_that_is_none_does_no_harm(
    exporter: InMemorySpanExporter, nonsense: str
) -> None:
    async with embedded(says("Hello"), byte_text()) as kernel:
        watch(kernel, exporter)
        await collect(kernel.gateway, Call(model="tiny", prompts=("x",), traceparent=nonsense))
    assert by_name(exporter)["generate"].parent is None


async def test_a_refusal_and_a_failure_are_errors_by_their_codes(
    exporter: InMemorySpanExporter,
) -> None:
    executor = says("Hello", failing=frozenset({(1, 2)}))
    async with embedded(executor, byte_text()) as kernel:
        watch(kernel, exporter)
        for prompt in (CANARY * 30, CANARY):
            with pytest.raises(RequestFailed):
                await collect(kernel.gateway, Call(model="tiny", prompts=(prompt,)))
    refused, failed = [span for span in exporter.get_finished_spans() if span.name == "generate"]
    assert refused.status.status_code == failed.status.status_code == StatusCode.ERROR
    assert attributes(refused)["error.type"] == "context_length_exceeded"
    assert attributes(refused)["plancha.outcome"] == "refused"
    assert attributes(failed)["error.type"] == "engine_error"
    assert attributes(failed)["plancha.outcome"] == "failed"
    assert attributes(failed)["gen_ai.usage.output_tokens"] == 2
    assert CANARY not in refused.to_json() + failed.to_json()


@pytest.mark.parametrize("shift_s", [-3600.0, 3600.0])
async def test_a_step_of_the_wall_clock_bends_no_span(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, shift_s: float
) -> None:
    gated = GatedExecutor(says("Hello"))
    async with embedded(gated, byte_text()) as kernel:
        watch(kernel, exporter)
        began = time.time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collect, kernel.gateway, Call(model="tiny", prompts=("x",)))
            await gated.run(2)
            wall = time.time_ns
            monkeypatch.setattr(time, "time_ns", lambda: wall() + int(shift_s * 1e9))
            gated.open()
    for span in exporter.get_finished_spans():
        first, last = nanoseconds(span)
        assert began - 1 <= first / 1e9 <= last / 1e9 < began + 600


async def test_several_outputs_are_one_request(exporter: InMemorySpanExporter) -> None:
    async with embedded(says("Hello"), byte_text()) as kernel:
        watch(kernel, exporter)
        await collect(kernel.gateway, Call(model="tiny", prompts=("x", "y"), n=2))
    whole = by_name(exporter)["generate"]
    assert attributes(whole)["plancha.outputs"] == 4
    assert attributes(whole)["gen_ai.response.finish_reasons"] == ("stop",) * 4


class Collector:
    """A receiver of OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: dict[str, Any] = {}
        self.service = ""

    async def receive(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        batch = ExportTraceServiceRequest.FromString(await request.read())
        for resource in batch.resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.service = named["service.name"]
            for scope in resource.scope_spans:
                self.spans |= {span.name: span for span in scope.spans}
        return web.Response(content_type="application/x-protobuf")


@asynccontextmanager
async def collecting() -> AsyncIterator[tuple[Collector, str]]:
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.receive)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield collector, f"http://127.0.0.1:{port}/v1/traces"
    finally:
        await runner.cleanup()


async def test_spans_reach_a_collector_with_the_callers_trace() -> None:
    async with collecting() as (collector, endpoint), embedded(says("Hi"), byte_text()) as kernel:
        async with traced(kernel.gateway, TracingTable(endpoint=endpoint)):
            address: list[str] = []
            transport = HttpTransport(structure({"port": 0}, HttpOptions, ""))
            async with anyio.create_task_group() as tasks, ClientSession() as session:
                tasks.start_soon(transport.run, kernel.gateway, address.append)
                while not address:
                    await anyio.lowlevel.checkpoint()
                headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
                body = {"prompt": "x", "max_tokens": 5}
                url = f"{address[0]}/v1/completions"
                async with session.post(url, json=body, headers=headers) as response:
                    assert response.status == 200
                    await response.read()
                tasks.cancel_scope.cancel()
        assert kernel.gateway.spans is None
    assert collector.service == "plancha"
    assert set(collector.spans) == {"generate", "queued", "prefill", "decode"}
    whole = collector.spans["generate"]
    assert whole.trace_id.hex() == TRACE and whole.parent_span_id.hex() == PARENT
    assert all(
        span.parent_span_id == whole.span_id and span.trace_id == whole.trace_id
        for name, span in collector.spans.items()
        if name != "generate"
    )


async def test_a_collector_that_is_not_there_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = "http://127.0.0.1:1/v1/traces"
    async with embedded(says("Hi"), byte_text()) as kernel:
        async with traced(kernel.gateway, TracingTable(endpoint=endpoint)):
            text, _, _ = await collect(kernel.gateway, Call(model="tiny", prompts=(CANARY,)))
    assert text == "Hi"
    assert CANARY not in caplog.text


async def test_without_an_endpoint_nothing_is_traced() -> None:
    async with embedded(says("Hi"), byte_text()) as kernel, traced(kernel.gateway, TracingTable()):
        assert kernel.gateway.spans is None


def test_a_server_that_does_not_trace_imports_nothing_for_it() -> None:
    program = (
        "import sys, plancha_app.serve, plancha_app.gateway_process, plancha_app.assembly\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


@pytest.mark.parametrize(
    "endpoint",
    ["127.0.0.1:4318", "http://127.0.0.1:4318", "ftp://a/v1/traces", "http://u:p@a/v1/traces"],
)
def test_an_endpoint_is_a_whole_address_without_a_secret(endpoint: str) -> None:
    with pytest.raises(OptionsError, match="endpoint"):
        structure({"endpoint": endpoint}, TracingTable, "tracing")


def test_a_missing_extra_is_told_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    table = TracingTable(endpoint="http://127.0.0.1:4318/v1/traces")
    assert list(tracing_problems(table)) == []
    for name in list(sys.modules):
        if name.startswith("opentelemetry"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    assert "plancha[otel]" in "".join(tracing_problems(table))
    assert list(tracing_problems(TracingTable())) == []
