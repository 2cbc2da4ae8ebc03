"""Quantiles of the latest durations, held against every one of them written out."""

from hypothesis import given
from hypothesis import strategies as st

from plancha.metrics.recent import NOTHING, Quantiles, Recent


def test_what_is_older_is_not_counted() -> None:
    recent = Recent()
    recent.observe(1.0, 9.0, {"a": 1})
    recent.observe(2.0, 0.5, {"a": 2})
    recent.observe(3.0, 0.1, {"b": 1})
    everybody, each = recent.since(2.0)
    assert everybody == Quantiles(3, 0.5, 0.5)
    assert each == {"a": Quantiles(2, 0.5, 0.5), "b": Quantiles(1, 0.1, 0.1)}
    assert recent.since(4.0) == (NOTHING, {})


@given(
    st.lists(
        st.tuples(
            st.integers(0, 20).map(lambda value: value / 8),
            st.dictionaries(st.sampled_from("abc"), st.integers(1, 40), min_size=1),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_a_quantile_is_the_least_value_that_covers_its_share(
    entries: list[tuple[float, dict[str, int]]],
) -> None:
    recent = Recent()
    written_out: dict[str, list[float]] = {}
    for seconds, tenants in entries:
        recent.observe(1.0, seconds, tenants)
        for tenant, times in tenants.items():
            written_out.setdefault(tenant, []).extend([seconds] * times)
    everybody, each = recent.since(0.0)
    assert set(each) == set(written_out)
    whole = [seconds for values in written_out.values() for seconds in values]
    for quantiles, values in [(everybody, whole), *((each[t], written_out[t]) for t in each)]:
        assert quantiles.count == len(values)
        assert quantiles.p50_s == sorted(values)[(len(values) + 1) // 2 - 1]
        assert quantiles.p99_s == sorted(values)[(99 * len(values) + 99) // 100 - 1]
