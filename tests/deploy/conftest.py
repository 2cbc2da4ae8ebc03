"""A worker in virtual time with a scraper beside it, and Prometheus' own tool to judge by."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from prometheus_client import CollectorRegistry

from plancha.contracts import Allocator, Executor, Geometry, Progress, Scheduler, Site
from plancha.metrics.worker_collector import WorkerCollector
from plancha.plans import Plan, StepDone
from plancha.testing.executors import ScriptExecutor
from plancha.testing.simulation import Simulation
from plancha_allocators.paged import paged
from plancha_schedulers.fair_queue import fair_queue

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRAPE_S = 15.0
TARGET = {"job": "plancha", "instance": "a"}


@attrs.define(eq=False)
class Busy:
    """An executor whose steps take all of their time."""

    inner: Executor
    step_s: float

    def load(self, progress: Progress) -> Geometry:
        return self.inner.load(progress)

    def step(self, plan: Plan) -> StepDone:
        return attrs.evolve(self.inner.step(plan), seconds=self.step_s)

    def reset(self) -> None:
        self.inner.reset()

    def close(self) -> None:
        self.inner.close()


class Watched:
    """A simulated worker whose figures are scraped every 15 seconds of its clock."""

    def __init__(
        self,
        *,
        blocks: int = 64,
        step_s: float = 0.09,
        scheduler: Callable[[Site], Scheduler] = lambda site: fair_queue({}, site),
        allocator: Callable[[Site], Allocator] = lambda site: paged({}, site),
        **site: Any,
    ) -> None:
        geometry = Geometry(blocks=blocks, context_length=256, vocabulary=264, stop_ids=(257,))
        site = {"max_waiting": 1000, "max_batched_tokens": 256, **site}
        whole = Site(max_sequences=8, block_size=16, model="tiny", vocabulary=260, **site)
        executor = Busy(ScriptExecutor(lambda prompt: (65,), geometry), step_s)
        self.simulation = Simulation(executor, whole, scheduler, allocator, step_s=step_s)
        self._registry = CollectorRegistry()
        clock = self.simulation.clock
        self._registry.register(WorkerCollector(self.simulation.planner, whole, clock))
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
        self._scrapes = 0

    def run(self, seconds: float) -> None:
        """Make steps for so long, or let time pass while nobody can run."""
        simulation = self.simulation
        end = simulation.clock() + seconds
        while simulation.clock() < end:
            plan = simulation.start()
            if plan is None:
                self.wait(min(SCRAPE_S, end - simulation.clock()))
            else:
                simulation.commit(plan)
                self._scrape_if_due()

    def wait(self, seconds: float) -> None:
        """Time passes and no step is made, whether or not one is in flight."""
        end = self.simulation.clock() + seconds
        while self.simulation.clock() < end:
            self.simulation.clock.advance(min(SCRAPE_S, end - self.simulation.clock()))
            self._scrape_if_due()

    def series(self) -> Iterator[dict[str, str]]:
        """All that was scraped, as promtool takes it."""
        for (name, labels), values in self._series.items():
            inside = ", ".join(f'{key}="{value}"' for key, value in (*TARGET.items(), *labels))
            yield {"series": f"{name}{{{inside}}}", "values": " ".join(values)}

    @property
    def minutes(self) -> int:
        """Whole ones so far."""
        return int(self.simulation.clock() // 60)

    def _scrape_if_due(self) -> None:
        while self.simulation.clock() >= self._scrapes * SCRAPE_S:
            for family in self._registry.collect():
                for sample in family.samples:
                    key = sample.name, tuple(sorted(sample.labels.items()))
                    values = self._series.setdefault(key, ["_"] * self._scrapes)
                    values.append(repr(float(sample.value)))
            self._scrapes += 1


@pytest.fixture
def watch() -> type[Watched]:
    """Makes a worker with a scraper; see `Watched`."""
    return Watched


Firing = Callable[[Watched, Mapping[str, Mapping[str, str]]], None]


@pytest.fixture
def fire(program: Callable[[str], str], tmp_path: Path) -> Firing:
    """`fire(watched, alerts)`: these alerts fire over what was scraped, and no others.

    `alerts` by name, each with the labels it has beside those of its target.
    """
    promtool = program("promtool")

    def check(watched: Watched, alerts: Mapping[str, Mapping[str, str]]) -> None:
        expected = [
            {
                "labels": "ALERTS{"
                + ", ".join(
                    f'{key}="{value}"'
                    for key, value in {
                        **{"alertname": name, "alertstate": "firing"},
                        **TARGET,
                        **labels,
                    }.items()
                )
                + "}",
                "value": 1,
            }
            for name, labels in alerts.items()
        ]
        test = {
            "rule_files": [str(DEPLOY / "prometheus" / "alerts.yml")],
            "evaluation_interval": "15s",
            "tests": [
                {
                    "interval": f"{SCRAPE_S:g}s",
                    "input_series": list(watched.series()),
                    "promql_expr_test": [
                        {
                            "expr": 'ALERTS{alertstate="firing"}',
                            "eval_time": f"{watched.minutes}m",
                            "exp_samples": expected,
                        }
                    ],
                }
            ],
        }
        path = tmp_path / "scraped.test.yml"
        path.write_text(json.dumps(test))  # JSON is YAML
        found = subprocess.run(
            [promtool, "test", "rules", path], capture_output=True, text=True, timeout=60
        )
        assert found.returncode == 0, found.stdout + found.stderr

    return check
