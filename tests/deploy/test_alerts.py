"""The alert rules, by Prometheus' own tool: over made up series, and over a worker's own."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from plancha.contracts import Tenant
from plancha.sequence import Sequence
from plancha_allocators.paged import paged

RULES = Path(__file__).parents[2] / "deploy" / "prometheus"
MINUTES = 13  # the rules look back for five, and then wait for five
WARNING, CRITICAL = {"severity": "warning"}, {"severity": "critical"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "alerts.yml"),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "alerts.test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_finds_nothing_wrong(
    program: Callable[[str], str], arguments: tuple[str, ...]
) -> None:
    found = subprocess.run(
        [program("promtool"), *arguments], cwd=RULES, capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_alert_has_a_test_in_which_it_fires() -> None:
    alerts = set(re.findall(r"alert: (\w+)", (RULES / "alerts.yml").read_text()))
    assert len(alerts) == 21
    tests = (RULES / "alerts.test.yml").read_text()
    assert {name for name in alerts if f'alertname="{name}"' in tests} == alerts


def test_a_server_that_serves_everybody_raises_no_alarm(watch: Any, fire: Any) -> None:
    watched = watch(tenants={"acme": Tenant(), "light": Tenant()})
    for second in range(MINUTES * 60):
        if second % 2 == 0:
            watched.simulation.submit([65] * 20, 20, tenant="acme")
        if second % 10 == 0:
            watched.simulation.submit([65] * 20, 20, tenant="light")
        watched.run(1.0)
    fire(watched, {})


def test_a_flood_is_seen_as_one_tenants(watch: Any, fire: Any) -> None:
    watched = watch(tenants={"acme": Tenant(), "light": Tenant()})
    for second in range(MINUTES * 60):
        if second % 5 == 0:
            watched.simulation.submit([65] * 20, 20, tenant="light")
        if second >= 60:
            watched.simulation.submit([65] * 20, 60, tenant="acme")
            watched.simulation.submit([65] * 20, 60, tenant="acme")
        watched.run(1.0)
    fire(
        watched,
        {
            "PlanchaTenantQueueGrowing": {**WARNING, "tenant": "acme"},
            "PlanchaQueueGrowing": WARNING,
            "PlanchaFirstTokenSlow": WARNING,  # the flood's own
        },
    )


def test_a_leak_is_seen_as_blocks_that_nobody_holds(watch: Any, fire: Any) -> None:
    watched = watch(allocator=lambda site: Leaky(paged({}, site)))
    for _ in range(3 * 60):
        watched.simulation.submit([65] * 20, 20)
        watched.run(1.0)
    watched.run(MINUTES * 60)
    assert not watched.simulation.planner.sequences
    fire(watched, {"PlanchaKvLeak": CRITICAL})


def test_a_pool_too_small_is_seen_as_pressure_and_as_evictions(watch: Any, fire: Any) -> None:
    watched = watch(blocks=48)
    for _ in range(MINUTES * 60):
        if watched.simulation.planner.waiting_sequences() < 3:
            watched.simulation.submit([65] * 60, 120)
        watched.run(1.0)
    fire(
        watched,
        {
            "PlanchaKvPressure": WARNING,
            "PlanchaEvictions": WARNING,
            "PlanchaFirstTokenSlow": WARNING,
        },
    )


def test_a_step_that_never_ends_is_seen_as_a_stall(watch: Any, fire: Any) -> None:
    watched = watch()
    watched.simulation.submit([65] * 20, 200)
    watched.run(10.0)
    assert watched.simulation.start() is not None
    watched.wait(10 * 60)
    fire(watched, {"PlanchaStalled": CRITICAL})


@attrs.define(eq=False)
class Leaky:
    """An allocator that now and then forgets what it was given back."""

    inner: Any
    released: int = 0

    def release(self, sequence: Sequence) -> None:
        self.released += 1
        if self.released % 100 == 0:
            sequence.blocks = []
        else:
            self.inner.release(sequence)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
