"""Series of GPUs, by a driver that is made up."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from plancha_app.gpu_collector import GpuCollector

GIB = 2**30


class NVMLError(Exception):
    """As `pynvml` calls it."""


class Driver(ModuleType):
    """Two GPUs: 80 GiB, of which 30 are in use and 91 % busy; 24 GiB, idle."""

    NVMLError = NVMLError
    broken: frozenset[str] = frozenset()
    inits = 0

    def nvmlInit(self) -> None:
        self.inits += 1
        self._may("init")

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index > 1:
            raise NVMLError("no such device")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return {"GPU-abc": 1}[uuid]

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:
        self._may(f"memory {device}")
        return SimpleNamespace(used=(30, 0)[device] * GIB, total=(80, 24)[device] * GIB)

    def nvmlDeviceGetUtilizationRates(self, device: int) -> Any:
        return SimpleNamespace(gpu=(91, 0)[device], memory=5)

    def _may(self, what: str) -> None:
        if what in self.broken:
            raise NVMLError(what)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver = Driver("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    return driver


def scraped(collector: GpuCollector) -> dict[tuple[str, str], float]:
    registry = CollectorRegistry()
    registry.register(collector)
    return {
        (sample.name.removeprefix("plancha_gpu_"), sample.labels["gpu"]): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_every_gpu_has_its_series(driver: Driver) -> None:
    assert scraped(GpuCollector()) == {
        ("utilization_ratio", "0"): 0.91,
        ("utilization_ratio", "1"): 0.0,
        ("memory_used_bytes", "0"): 30 * GIB,
        ("memory_used_bytes", "1"): 0,
        ("memory_total_bytes", "0"): 80 * GIB,
        ("memory_total_bytes", "1"): 24 * GIB,
    }


@pytest.mark.parametrize(("visible", "gpus"), [("1", {"1"}), ("GPU-abc", {"GPU-abc"}), ("", set())])
def test_gpus_that_are_another_processs_are_left_out(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, visible: str, gpus: set[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = scraped(GpuCollector())
    assert {gpu for _, gpu in found} == gpus
    if gpus:
        assert found["memory_total_bytes", gpus.pop()] == 24 * GIB


def test_a_gpu_that_fell_off_the_bus_takes_no_other_with_it(driver: Driver) -> None:
    driver.broken = frozenset({"memory 0"})
    assert {gpu for _, gpu in scraped(GpuCollector())} == {"1"}


def test_without_a_driver_there_are_no_series_and_it_is_not_asked_again(driver: Driver) -> None:
    driver.broken = frozenset({"init"})
    collector = GpuCollector()
    assert scraped(collector) == scraped(collector) == {}
    assert driver.inits == 1


def test_without_the_package_there_are_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert scraped(GpuCollector()) == {}
