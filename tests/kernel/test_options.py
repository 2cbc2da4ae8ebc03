from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

from plancha.options import (
    OptionsError,
    Size,
    at_least,
    between,
    multiple_of,
    parse_size,
    power_of_two,
    structure,
)


@attrs.frozen(kw_only=True)
class Batch:
    max_num_seqs: int = attrs.field(default=8, validator=between(1, 4096))
    ratio: float = 0.5
    overlap: bool = True


@attrs.frozen(kw_only=True)
class Cache:
    block_size: int = attrs.field(default=16, validator=power_of_two(8, 64))
    pool: Size = attrs.field(factory=lambda: Size(0))
    folder: Path = Path()


@attrs.frozen(kw_only=True)
class Root:
    name: str
    batch: Batch = attrs.field(factory=Batch)
    cache: Cache = attrs.field(factory=Cache)
    mode: Literal["fast", "exact"] = "exact"
    stop: tuple[str, ...] = ()
    rate: float | None = None
    gates: dict[str, Batch] = attrs.field(factory=dict)


def mistakes(table: Mapping[str, Any], cls: type = Root, where: str = "") -> dict[str, str]:
    with pytest.raises(OptionsError) as caught:
        structure(table, cls, where)
    return {problem.key: str(problem) for problem in caught.value.problems}


def test_a_table_becomes_its_class_with_defaults_for_what_is_absent() -> None:
    table = {
        "name": "x",
        "batch": {"ratio": 1, "overlap": False},
        "cache": {"pool": "1.5KiB", "folder": "/srv"},
        "mode": "fast",
        "stop": ["a", "b"],
        "gates": {"one": {"max_num_seqs": 2}},
    }

    root = structure(table, Root, "")

    assert root == Root(
        name="x",
        batch=Batch(max_num_seqs=8, ratio=1.0, overlap=False),
        cache=Cache(block_size=16, pool=Size(1536), folder=Path("/srv")),
        mode="fast",
        stop=("a", "b"),
        rate=None,
        gates={"one": Batch(max_num_seqs=2)},
    )
    assert type(root.batch.ratio) is float


@pytest.mark.parametrize("value", ["16", 16.0, True, 0, -16, 24])
def test_a_block_size_is_never_coerced_or_rounded(value: object) -> None:
    found = mistakes({"name": "x", "cache": {"block_size": value}})

    assert list(found) == ["cache.block_size"]
    assert "must be a whole number that is a power of two: 8, 16, 32 or 64" in str(found)


def test_a_value_is_shown_as_toml_writes_it() -> None:
    found = mistakes({"name": True, "batch": {"max_num_seqs": "8", "overlap": 1}, "stop": "ab"})

    assert found == {
        "name": "name = true: must be text",
        "batch.max_num_seqs": 'batch.max_num_seqs = "8": must be a whole number from 1 to 4_096',
        "batch.overlap": "batch.overlap = 1: must be true or false",
        "stop": 'stop = "ab": must be a list, each text',
    }


def test_every_mistake_is_told_at_once_in_the_order_of_the_table() -> None:
    table = {
        "mode": "slow",
        "batch": {"max_num_seqs": 0, "ratio": float("nan")},
        "cache": 3,
        "stop": ["a", 1],
        "gates": {"one": {"overlap": "no"}, "two": 2},
    }

    found = mistakes(table, where="deep.down")

    assert list(found) == [
        f"deep.down.{key}"
        for key in (
            "mode",
            "batch.max_num_seqs",
            "batch.ratio",
            "cache",
            "stop[1]",
            "gates.one.overlap",
            "gates.two",
            "name",
        )
    ]
    assert found["deep.down.mode"] == 'deep.down.mode = "slow": must be "fast" or "exact"'
    assert found["deep.down.name"] == "deep.down.name: missing; must be text"


def test_an_unknown_key_names_the_nearest_valid_one_and_its_type() -> None:
    found = mistakes({"name": "x", "batch": {"max_num_seq": 8}, "btach": {}})

    assert found["batch.max_num_seq"] == (
        'batch.max_num_seq = 8: no such key; did you mean "max_num_seqs"? '
        "It must be a whole number from 1 to 4_096"
    )
    assert found["btach"] == 'btach: no such table; did you mean "batch"? It must be a table'


def test_a_key_that_belongs_into_another_table_is_sent_there() -> None:
    found = mistakes({"name": "x", "block_size": 16, "batch": {"pool": 3, "mode": "fast"}})

    assert found["block_size"].endswith(
        "the top level has no key block_size; it belongs in [cache]"
    )
    assert found["batch.pool"].endswith("[batch] has no key pool; it belongs in [cache]")
    assert found["batch.mode"].endswith("[batch] has no key mode; it belongs in the top level")


def test_a_key_near_to_nothing_gets_the_list_of_valid_ones() -> None:
    found = mistakes({"zzz": 1}, Batch, "batch")

    assert found["batch.zzz"].endswith("no such key; here are max_num_seqs, ratio, overlap")


def test_a_class_without_fields_takes_no_keys() -> None:
    @attrs.frozen
    class Nothing:
        pass

    assert mistakes({"a": 1}, Nothing, "scheduler") == {
        "scheduler.a": "scheduler.a = 1: takes no keys"
    }


def test_a_secret_is_not_shown_even_when_it_is_misplaced() -> None:
    found = mistakes({"name": "x", "api_key": "hunter2", "batch": {"password": "hunter2"}})

    assert "hunter2" not in str(found)
    assert set(found) == {"api_key", "batch.password"}


def test_a_long_value_is_shortened() -> None:
    assert len(mistakes({"name": ["x" * 10_000]})["name"]) < 100


def test_ranges_of_attrs_itself_are_reported_by_key_and_value_too() -> None:
    @attrs.frozen
    class Plain:
        depth: int = attrs.field(default=1, validator=attrs.validators.ge(1))

    assert mistakes({"depth": 0}, Plain, "a") == {"a.depth": "a.depth = 0: must be >= 1"}


def test_several_ranges_of_one_field_are_all_named() -> None:
    @attrs.frozen
    class Both:
        width: int = attrs.field(validator=[at_least(32), multiple_of(32)])

    assert structure({"width": 64}, Both, "").width == 64
    assert mistakes({"width": 48}, Both, "") == {
        "width": "width = 48: must be a whole number of 32 or more and that is a multiple of 32"
    }


def test_a_check_across_fields_is_reported_at_the_table() -> None:
    @attrs.frozen
    class Range:
        low: int
        high: int

        def __attrs_post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError(f"low is {self.low}; it must not exceed high, {self.high}")

    assert mistakes({"low": 2, "high": 1}, Range, "gate") == {
        "gate": "gate = {…}: low is 2; it must not exceed high, 1"
    }


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (7, 7),
        ("7B", 7),
        ("512MiB", 512 * 1024 * 1024),
        ("1 GiB", 1024**3),
        ("1.5GB", 1_500_000_000),
    ],
)
def test_a_size_is_bytes_or_a_number_with_a_unit(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize("written", ["", "1", "GiB", "1gib", "-1GiB", "1e9B", -1, True, 1.0, None])
def test_what_is_no_size_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match="512MiB"):
        parse_size(written)


def test_a_size_works_as_a_type_and_as_a_converter() -> None:
    @attrs.frozen
    class Pools:
        device: Size = attrs.field(factory=lambda: Size(1))
        host: int = attrs.field(default=0, converter=parse_size)

    pools = structure({"device": "1KiB", "host": "2KiB"}, Pools, "kv")

    assert (pools.device, pools.host) == (1024, 2048)
    assert {
        key: "512MiB" in text
        for key, text in mistakes({"device": "1", "host": "2"}, Pools, "kv").items()
    } == {"kv.device": True, "kv.host": True}
