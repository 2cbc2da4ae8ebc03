"""GPUs as NVIDIA's driver sees them (NVML, of the extra `cuda`), for a worker's scrapes.

Without the package, the driver or a GPU there are no such series, and nobody is the worse for it.
"""

import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric

log = structlog.get_logger()

LABELS = ("gpu",)


class GpuCollector:
    """For a registry that is collected on a thread: the driver may take its time.

    GPUs that CUDA_VISIBLE_DEVICES hides from this process are another's, and are left out.
    """

    def __init__(self) -> None:
        self._nvml: Any = None
        self._tried = False

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        used = _family("memory_used_bytes", "Memory in use, by whichever process.")
        total = _family("memory_total_bytes", "Memory there is.")
        busy = _family("utilization_ratio", "Share of the last moment in which a kernel ran.")
        for name, device in self._devices():
            try:
                memory = self._nvml.nvmlDeviceGetMemoryInfo(device)
                rates = self._nvml.nvmlDeviceGetUtilizationRates(device)
            except self._nvml.NVMLError:
                continue  # fallen off the bus, say
            used.add_metric((name,), memory.used)
            total.add_metric((name,), memory.total)
            busy.add_metric((name,), rates.gpu / 100)
        if busy.samples:
            yield from (busy, used, total)

    def _devices(self) -> Iterator[tuple[str, Any]]:
        if not self._tried:
            self._tried = True
            self._nvml = _open()
        nvml = self._nvml
        if nvml is None:
            return
        for name in _visible(nvml):
            try:
                if name.isdecimal():
                    yield name, nvml.nvmlDeviceGetHandleByIndex(int(name))
                else:
                    yield name, nvml.nvmlDeviceGetHandleByUUID(name)
            except nvml.NVMLError:
                continue


def _open() -> Any:
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        log.debug("no_nvml", reason=str(error))
        return None
    return nvml


def _visible(nvml: Any) -> list[str]:
    """Indexes or UUIDs, in the process's own order."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    try:
        return [str(index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return []


def _family(name: str, about: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"plancha_gpu_{name}", about, labels=LABELS)
