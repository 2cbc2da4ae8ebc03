"""What a worker tells a scraper, by way of its gateway."""

import threading
from collections.abc import Iterator
from typing import Any

import anyio
import attrs
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from plancha.contracts import Geometry, Tenant
from plancha.messages import Ask
from plancha.metrics import figures
from plancha.metrics.figures import Figures
from plancha.metrics.worker_collector import MOST_TENANTS, WorkerCollector
from plancha.testing.embedded import embedded
from plancha.testing.executors import ChainExecutor
from plancha_text.byte_text import byte_text

GEOMETRY = Geometry(blocks=64, context_length=256, vocabulary=264, stop_ids=(257,))


def collector_of(simulation: Any) -> WorkerCollector:
    return WorkerCollector(simulation.planner, simulation.planner.room.site, simulation.clock)


def by_tenant(
    simulation: Any, name: str, collector: WorkerCollector | None = None
) -> dict[str, float]:
    """A tenants' family, of those that are not 0."""
    registry = CollectorRegistry()
    registry.register(collector or collector_of(simulation))
    return {
        sample.labels["tenant"] + sample.labels.get("kind", ""): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == f"plancha_tenant_{name}" and sample.value
    }


def test_tenants_of_the_file_have_series_and_everybody_else_is_other(rig: Any) -> None:
    tenants = {"acme": Tenant(), "light": Tenant()}
    simulation = attrs.evolve(rig, max_sequences=3).script(65)
    simulation.planner.room.site.tenants = tenants
    for tenant, requests in (("acme", 4), ("light", 1), ("nobody", 2), ("someone", 1)):
        for _ in range(requests):
            simulation.submit([65] * 20, 8, tenant=tenant)
    simulation.step()
    assert by_tenant(simulation, "running_sequences") == {"acme": 3}
    assert by_tenant(simulation, "waiting_sequences") == {"acme": 1, "light": 1, "other": 3}
    simulation.run()
    assert by_tenant(simulation, "waiting_sequences") == {}
    assert by_tenant(simulation, "tokens_total") == {
        "acmeprompt": 80,
        "lightprompt": 20,
        "otherprompt": 60,
        "acmegenerated": 32,
        "lightgenerated": 8,
        "othergenerated": 24,
    }


def test_no_tenants_counter_goes_back_when_the_file_names_others(rig: Any) -> None:
    simulation = attrs.evolve(rig, max_sequences=3).script(65)
    site = simulation.planner.room.site
    site.tenants = {"acme": Tenant()}
    collector, seen = collector_of(simulation), dict[str, list[float]]()
    for tenants in (("acme",), (), ("acme", "late"), ("late",)):
        site.tenants = dict.fromkeys(tenants, Tenant())
        for tenant in ("acme", "late"):
            by_tenant(simulation, "tokens_total", collector)
            simulation.submit([65] * 20, 8, tenant=tenant)
            simulation.run()
        told = by_tenant(simulation, "tokens_total", collector)
        for label in ("acme", "late", "other"):
            seen.setdefault(label, []).append(told.get(f"{label}generated", 0))

    assert seen == {"acme": [8, 16, 24, 32], "late": [0, 0, 8, 16], "other": [8, 16, 16, 16]}


def test_a_paused_sequence_does_not_wait(rig: Any) -> None:
    simulation = rig.script(65)
    simulation.planner.room.site.tenants = {"acme": Tenant()}
    stream = simulation.submit([65] * 20, 8, tenant="acme")
    simulation.step()
    simulation.pause(stream)
    simulation.step()
    assert by_tenant(simulation, "waiting_sequences") == {}
    assert by_tenant(simulation, "running_sequences") == {}
    simulation.resume(stream)
    assert by_tenant(simulation, "waiting_sequences") == {"acme": 1}
    simulation.run()


def test_labels_are_capped_however_many_tenants_there_are(rig: Any) -> None:
    simulation = rig.script(65)
    tenants = {f"tenant-{i}": Tenant() for i in range(MOST_TENANTS + 50)}
    simulation.planner.room.site.tenants = tenants
    for name in (f"tenant-{MOST_TENANTS - 1}", f"tenant-{MOST_TENANTS}", "tenant-0"):
        simulation.submit([65], 3, tenant=name)
    assert by_tenant(simulation, "waiting_sequences") == {
        "tenant-0": 1,
        f"tenant-{MOST_TENANTS - 1}": 1,
        "other": 1,
    }
    simulation.run()


def test_a_step_in_flight_gets_older(rig: Any) -> None:
    simulation = rig.script(65)
    simulation.submit([65] * 20, 8)
    assert simulation.planner.step_age_s(simulation.clock()) == 0
    plan = simulation.start()
    simulation.clock.advance(70.0)
    assert simulation.planner.step_age_s(simulation.clock()) == 70.0
    simulation.commit(plan)
    assert simulation.planner.step_age_s(simulation.clock()) == 0
    simulation.run()


class Slow:
    """A collector that asks a driver which does not answer until it is let."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.asked = 0

    def collect(self) -> Iterator[Metric]:
        self.asked += 1
        assert self.go_on.wait(60.0)
        yield GaugeMetricFamily("gpu", "…", value=1)


def names(text: bytes | None) -> set[str]:
    assert text is not None
    return {family.name for family in text_string_to_metric_families(text.decode())}


async def test_a_driver_that_hangs_costs_its_own_figures_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow()
    async with embedded(ChainExecutor(GEOMETRY), byte_text()) as kernel:
        kernel.worker.figures.blocking.register(slow)
        monkeypatch.setattr(figures, "PATIENCE_S", 0.01)
        for _ in range(3):
            told = names((await kernel.gateway.inquiries.ask_worker("metrics")).content)
            assert "plancha_steps" in told and "gpu" not in told
        assert slow.asked == 1  # the others wait for the thread, and give up
        slow.go_on.set()
        monkeypatch.setattr(figures, "PATIENCE_S", 60.0)
        assert "gpu" in names((await kernel.gateway.inquiries.ask_worker("metrics")).content)


async def test_scrapes_at_once_are_all_answered() -> None:
    told = Figures()
    answers: list[bytes | None] = []

    async def ask(number: int) -> None:
        answers.append((await told.answer(Ask(number, "", ""))).content)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(ask, number)
    assert answers == [b""] * 20


class Broken:
    """A collector with a bug."""

    def collect(self) -> Iterator[Metric]:
        raise ZeroDivisionError


async def test_a_collector_that_fails_costs_its_own_half_alone() -> None:
    async with embedded(ChainExecutor(GEOMETRY), byte_text()) as kernel:
        kernel.worker.figures.blocking.register(Broken())
        assert "plancha_steps" in names(
            (await kernel.gateway.inquiries.ask_worker("metrics")).content
        )
