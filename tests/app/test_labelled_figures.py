"""Texts of several processes as one, written and read by Prometheus' own client."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from plancha_app.labelled_figures import family, labelled

Labels = frozenset[tuple[str, str]]


def rendered(spent: float) -> str:
    """One of each kind, with labels that try to look like something else."""
    registry = CollectorRegistry()
    Counter("spent", "Tokens, {of} all.", ["door", "why"], registry=registry).labels(
        'a{b="c"} 1', "x\ny\\"
    ).inc(spent)
    Gauge("waiting", "Sequences.\nTwo lines.", registry=registry).set(-0.5)
    Histogram("late_seconds", "How late.", buckets=(0.1, 1.0), registry=registry).observe(spent)
    return generate_latest(registry).decode()


def samples(text: str) -> dict[tuple[str, Labels], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for each in text_string_to_metric_families(text)
        for sample in each.samples
    }


def test_every_sample_is_there_with_whose_it_is_and_every_family_once() -> None:
    first, second = rendered(0.5), rendered(7)

    text = labelled("gateway", {"1": first, "2": second})

    expected = {
        (name, labels | {("gateway", whose)}): value
        for whose, each in (("1", first), ("2", second))
        for (name, labels), value in samples(each).items()
    }
    assert samples(text) == expected
    names = [each.name for each in text_string_to_metric_families(text)]
    assert sorted(names) == sorted(each.name for each in text_string_to_metric_families(first))
    kinds = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(kinds) == len(set(kinds))


def test_a_family_that_only_one_of_them_has_is_kept() -> None:
    registry = CollectorRegistry()
    Gauge("only", "Here.", registry=registry).set(3)

    text = labelled("gateway", {"1": rendered(1), "2": generate_latest(registry).decode()})

    assert samples(text)["only", frozenset({("gateway", "2")})] == 3
    assert ("only", frozenset({("gateway", "1")})) not in samples(text)


def test_nobody_tells_anything() -> None:
    assert labelled("gateway", {}) == ""
    assert labelled("gateway", {"1": "", "2": ""}) == ""


def test_a_family_of_our_own_is_read_as_it_was_meant() -> None:
    (read,) = text_string_to_metric_families(
        family("starts_total", "counter", "Of processes.", "process", {"worker": 1.0, "b-1": 2e7})
    )

    assert (read.name, read.type, read.documentation) == ("starts", "counter", "Of processes.")
    assert [(each.labels, each.value) for each in read.samples] == [
        ({"process": "worker"}, 1.0),
        ({"process": "b-1"}, 2e7),
    ]
