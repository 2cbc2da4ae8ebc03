"""Dashboard, rules and docs name what the code exports, and the docs all of it."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import anyio
import pytest
from prometheus_client import ProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from plancha.contracts import Geometry
from plancha.options import structure
from plancha.testing.embedded import embedded
from plancha.testing.executors import ChainExecutor
from plancha_app.child import Child
from plancha_app.gateway_figures import GatewayFigures
from plancha_app.gpu_collector import GpuCollector
from plancha_app.words import Render, Rendered
from plancha_text.byte_text import byte_text
from plancha_transports.http import HttpTransport
from plancha_transports.options import HttpOptions

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "plancha.json"
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
TABLE = ROOT / "docs" / "metrics.md"

GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(257,))
OF_PROMETHEUS = {"up"}
KEYWORDS = {"and", "or", "unless", "bool", "offset"}
GROUPING = r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"

Family = tuple[str, frozenset[str]]
"""Type, and labels but for a bucket's bound."""


@pytest.fixture
async def exposition(monkeypatch: pytest.MonkeyPatch) -> str:
    """All that a server of several processes with a GPU tells."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    async with embedded(ChainExecutor(GEOMETRY), byte_text()) as kernel:
        blocking = kernel.worker.figures.blocking
        blocking.register(GpuCollector())
        ProcessCollector(namespace="plancha_worker", registry=blocking)
        scraping = kernel.gateway.scraping

        def tell(word: Any) -> None:
            assert isinstance(word, Render) and scraping.render is not None
            figures.rendered(gateway, Rendered(word.number, scraping.render()))

        gateway = cast(Child, SimpleNamespace(name="gateway-1", starts=1, tell=tell))
        worker = cast(Child, SimpleNamespace(name="worker", starts=1))
        figures = GatewayFigures(worker, [gateway])
        scraping.collect = figures.collect
        return await scraped(kernel.gateway)


@pytest.fixture
async def exported(exposition: str) -> dict[str, Family]:
    """Every family of it, by its name in the docs."""
    return families(exposition)


async def scraped(gateway: Any) -> str:
    """What the second scrape finds: the first one is in it, and bytes that are no HTTP."""
    address: list[str] = []
    transport = HttpTransport(structure({"port": 0}, HttpOptions, ""))
    async with anyio.create_task_group() as tasks, aiohttp.ClientSession() as session:
        tasks.start_soon(transport.run, gateway, address.append)
        while not address:
            await anyio.lowlevel.checkpoint()
        port = int(address[0].rpartition(":")[2])
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"\0\r\n\r\n")
            await stream.receive()
        for _ in range(2):
            async with session.get(f"{address[0]}/metrics") as response:
                assert response.status == 200
                text = await response.text()
        tasks.cancel_scope.cancel()
    return text


def nvml() -> Any:
    return SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(used=1, total=2),
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=50),
    )


def families(text: str) -> dict[str, Family]:
    found: dict[str, Family] = {}
    for family in text_string_to_metric_families(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        assert name not in found, f"{name} is told twice"
        labels = {label for sample in family.samples for label in sample.labels}
        if name != "plancha_gateway_up":
            labels -= {"gateway"}  # the docs say of which that is
        found[name] = family.type, frozenset(labels - {"le"})
    return found


def series(exported: dict[str, Family]) -> set[str]:
    """Names as queries have them."""
    names = set(exported)
    for name, (kind, _) in exported.items():
        if kind == "histogram":
            names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return names


def metrics_in(expression: str) -> set[str]:
    """Names in PromQL that are no functions and no keywords."""
    left = re.sub(r'"[^"]*"', "", expression)
    left = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", left)
    left = re.sub(GROUPING, " ", left)
    words = re.findall(r"(?<![\w:])[a-zA-Z_:][\w:]*(?![\w:]|\s*\()", left)
    return {word for word in words if word not in KEYWORDS}


def expressions_in_rules() -> Iterator[str]:
    lines = iter(RULES.read_text().splitlines())
    for line in lines:
        found = re.match(r"( *)(?:- )?expr: *(.*)", line)
        if found is None:
            continue
        if found[2] != "|":
            yield found[2]
            continue
        block = []
        for inner in lines:
            if len(inner) - len(inner.lstrip()) <= len(found[1]):
                break
            block.append(inner)
        yield "\n".join(block)


def recorded() -> set[str]:
    return set(re.findall(r"record: (\S+)", RULES.read_text()))


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions_in_dashboard() -> Iterator[str]:
    for panel in panels():
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        if variable["type"] == "query":
            yield re.sub(r",\s*\w+\)$", ")", variable["definition"])


def rows_of_table() -> Iterator[tuple[str, str, frozenset[str]]]:
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            yield cells[0].strip("`"), cells[1], frozenset(re.findall(r"`(\w+)`", cells[2]))


async def test_names_are_as_prometheus_has_them(
    exposition: str, program: Callable[[str], str]
) -> None:
    command = [program("promtool"), "check", "metrics"]
    found = await anyio.run_process(command, input=exposition.encode(), check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")


def test_names_are_found_in_queries() -> None:
    query = (
        'sum by (le, job) (rate(a_bucket{reason=~"b|c"}[5m])) / on (job) group_left () d:e '
        "> 0.5 * avg_over_time(f_g[1h] offset 10m) and on (job) up == 1"
    )
    assert metrics_in(query) == {"a_bucket", "d:e", "f_g", "up"}


async def test_rules_name_no_metric_that_the_code_does_not_export(
    exported: dict[str, Family],
) -> None:
    named = {name for each in expressions_in_rules() for name in metrics_in(each)}
    assert len(named) > 20
    assert named - series(exported) - recorded() - OF_PROMETHEUS == set()


async def test_the_dashboard_names_no_metric_that_the_code_does_not_export(
    exported: dict[str, Family],
) -> None:
    named = {name for each in expressions_in_dashboard() for name in metrics_in(each)}
    assert len(named) > 40
    assert named - series(exported) - recorded() - OF_PROMETHEUS == set()


async def test_the_dashboard_leaves_out_nothing_of_ours(exported: dict[str, Family]) -> None:
    named = {name for each in expressions_in_dashboard() for name in metrics_in(each)}
    ours = {name for name in exported if "process_" not in name}
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in named}
    assert ours - shown == set()


async def test_docs_and_code_have_the_same_metrics_types_and_labels(
    exported: dict[str, Family],
) -> None:
    rows = list(rows_of_table())
    table = {name: (kind, labels) for name, kind, labels in rows}
    assert len(table) == len(rows)
    assert table == exported


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    assert [row["title"] for row in dashboard["panels"] if row["type"] == "row"] == [
        "Health",
        "Requests and latency",
        "Throughput",
        "Batch and KV",
        "Tenants",
    ]
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    assert variables == {"datasource", "job", "instance"}
    covered: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not covered & cells, panel["title"]
        covered |= cells
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables, panel["title"]
