"""Our figures as families of `prometheus_client`, which knows the text format."""

from collections.abc import Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from plancha.metrics.histogram import Histogram

PREFIX = "plancha_"


def histogram(name: str, about: str, measured: Histogram) -> Metric:
    """Of all that it observed."""
    return HistogramMetricFamily(
        PREFIX + name, about, buckets=measured.buckets(), sum_value=measured.sum
    )


def counter(name: str, about: str, value: float) -> Metric:
    """`_total` is added to its name."""
    return CounterMetricFamily(PREFIX + name, about, value=value)


def gauge(name: str, about: str, value: float) -> Metric:
    """One value."""
    return GaugeMetricFamily(PREFIX + name, about, value=value)


def counters(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    """One for each value of the label."""
    family = CounterMetricFamily(PREFIX + name, about, labels=(label,))
    for value, count in values.items():
        family.add_metric((value,), count)
    return family


def gauges(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    """Likewise."""
    family = GaugeMetricFamily(PREFIX + name, about, labels=(label,))
    for value, level in values.items():
        family.add_metric((value,), level)
    return family
