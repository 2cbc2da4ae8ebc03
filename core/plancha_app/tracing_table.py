"""`[tracing]`: where the spans of requests go, if anywhere."""

from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import urlsplit

import attrs

from plancha.option_values import Check
from plancha.options import between


def _is_endpoint(endpoint: str | None) -> bool:
    if endpoint is None:
        return True
    parts = urlsplit(endpoint)
    named = parts.scheme in ("http", "https") and bool(parts.hostname) and len(parts.path) > 1
    return named and parts.username is None  # which would be in logs


IS_ENDPOINT = Check(
    'that is a URL with a path and no password, such as "http://127.0.0.1:4318/v1/traces"',
    _is_endpoint,
)


@attrs.frozen(kw_only=True)
class TracingTable:
    """Requests as OpenTelemetry spans, with ids, counts and times; needs the extra `otel`."""

    endpoint: str | None = attrs.field(default=None, validator=IS_ENDPOINT)
    """Where spans are sent, as OTLP over HTTP. Left out: there are none."""

    ratio: float = attrs.field(default=1.0, validator=between(0, 1))
    """Share of requests that are traced, of those whose caller sends no `traceparent`, which
    decides itself."""


def tracing_problems(table: TracingTable) -> Iterator[str]:
    """What is missing for it."""
    modules = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    if table.endpoint is not None and not all(map(_is_installed, modules)):
        yield "endpoint: needs packages that are not there: pip install 'plancha[otel]'"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that it is in
        return False
