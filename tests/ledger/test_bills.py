"""What is billed, added up and handed on."""

import csv
import io
import json

import pytest

from ledger_places import Place, closed, counts, opened, run
from plancha.record import Outcome
from plancha_ledger.entry import Entry
from plancha_ledger.export import csv_lines, json_lines
from plancha_ledger.totals import Selection, Total, billed, iso_time, totals

LAST_OF_MAY = 1_780_271_999.0  # 2026-05-31 23:59:59 UTC, by `date -u -d @1780271999`


@pytest.fixture
def rows(sqlite_place: Place) -> list[Entry]:
    """Two tenants at a turn of months; one attempt that was started again, one never ended."""
    run(lambda: fill(sqlite_place))
    return sqlite_place.rows()


async def fill(place: Place) -> None:
    ledger = await place.open()
    requests: list[tuple[str, str, int, int, Outcome, float]] = [
        ("r1", "acme", 100, 10, "completed", LAST_OF_MAY),
        ("r2", "acme", 30, 0, "cancelled", LAST_OF_MAY + 1),
        ("r3", "zeta", 7, 5, "failed", LAST_OF_MAY + 2),
        ("r4", "zeta", 0, 0, "cancelled", LAST_OF_MAY + 2),
        ("r5", "acme", 9, 2, "stalled", LAST_OF_MAY + 86_400),
    ]
    for name, tenant, inputs, outputs, outcome, at in requests:
        final = counts(name, inputs, outputs, cached=inputs // 2)
        new = opened(name, tenant=tenant, at=at - 5)
        await ledger.write([new], [], [closed(final, outcome, at=at)])
    lost = closed(counts("r6", 50, 1), "failed", superseded=True, at=LAST_OF_MAY)
    again = closed(counts("r6", 50, 4, attempt=1), at=LAST_OF_MAY)
    await ledger.write([opened("r6"), opened("r6", attempt=1)], [], [lost, again])
    await ledger.write([opened("r7")], [], [])
    await ledger.close()


def test_every_outcome_is_billed_for_what_was_computed_but_no_superseded_attempt(
    rows: list[Entry],
) -> None:
    assert totals(billed(rows), ["tenant"]) == {
        ("acme",): Total(
            requests=4,
            input_tokens=100 + 30 + 9 + 50,
            cached_tokens=50 + 15 + 4,
            output_tokens=10 + 0 + 2 + 4,
            completed=2,
            cancelled=1,
            stalled=1,
        ),
        ("zeta",): Total(
            requests=2, input_tokens=7, cached_tokens=3, output_tokens=5, cancelled=1, failed=1
        ),
    }


def test_groups_are_days_and_months_of_utc_by_the_end_of_the_request(rows: list[Entry]) -> None:
    requests = {group: total.requests for group, total in totals(billed(rows), ["month"]).items()}
    assert requests == {("2026-05",): 2, ("2026-06",): 4}
    requests = {
        group: total.requests for group, total in totals(billed(rows), ["day", "outcome"]).items()
    }
    assert requests == {
        ("2026-05-31", "completed"): 2,
        ("2026-06-01", "cancelled"): 2,
        ("2026-06-01", "failed"): 1,
        ("2026-06-01", "stalled"): 1,
    }


def test_a_part_is_chosen_by_tenant_and_time(rows: list[Entry]) -> None:
    june = Selection(since_us=round((LAST_OF_MAY + 1) * 1e6))
    may = Selection(tenant="acme", until_us=round((LAST_OF_MAY + 1) * 1e6))

    assert [row.request for row in billed(rows, june)] == ["r2", "r3", "r4", "r5"]
    assert [row.request for row in billed(rows, may)] == ["r1", "r6"]


def test_the_csv_is_read_back_as_it_was(rows: list[Entry]) -> None:
    text = b"".join(csv_lines(billed(rows))).decode()

    found = list(csv.DictReader(io.StringIO(text)))

    assert [row["request"] for row in found] == ["r1", "r2", "r3", "r4", "r5", "r6"]
    assert found[0] == {
        "request": "r1",
        "attempt": "0",
        "label": "mine",
        "tenant": "acme",
        "model": "m",
        "outcome": "completed",
        "opened": "2026-05-31T23:59:54.000000Z",
        "closed": "2026-05-31T23:59:59.000000Z",
        "input_tokens": "100",
        "cached_tokens": "50",
        "output_tokens": "10",
    }


def test_the_json_has_numbers_and_names(rows: list[Entry]) -> None:
    found = [json.loads(line) for line in json_lines(billed(rows))]

    assert [(row["request"], row["output_tokens"]) for row in found][-2:] == [("r5", 2), ("r6", 4)]
    assert found[1]["outcome"] == "cancelled"


@pytest.mark.parametrize("label", ["=1+1", "@SUM(A1)", "+1", "-1", '=cmd|" /C calc"!A0'])
async def test_a_label_becomes_no_formula_in_a_spreadsheet(sqlite_place: Place, label: str) -> None:
    ledger = await sqlite_place.open()
    new = opened("r1")
    object.__setattr__(new, "label", label)
    await ledger.write([new], [], [closed(counts("r1", 1, 1))])
    await ledger.close()
    rows = list(billed(sqlite_place.rows()))

    text = b"".join(csv_lines(rows)).decode()

    assert next(iter(csv.DictReader(io.StringIO(text))))["label"] == f"'{label}"
    assert json.loads(next(json_lines(rows)))["label"] == label


def test_times_are_exact_to_the_microsecond() -> None:
    assert iso_time(1_780_271_999_000_001) == "2026-05-31T23:59:59.000001Z"
    assert iso_time(-1) == "1969-12-31T23:59:59.999999Z"
