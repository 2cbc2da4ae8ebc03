"""The ledger for other programs: bills as CSV or lines of JSON, or the chain itself."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from plancha_ledger.entry import Entry
from plancha_ledger.reading import dump_line
from plancha_ledger.totals import iso_time

FIELDS = (
    "request",
    "attempt",
    "label",
    "tenant",
    "model",
    "outcome",
    "opened",
    "closed",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def json_lines(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Closed requests, an object each."""
    return (orjson.dumps(_fields(entry)) + b"\n" for entry in entries)


def csv_lines(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Closed requests as RFC 4180 has it, the names first.

    Clients choose their labels: one that a spreadsheet would take for a formula gets a quotation
    mark before it.
    """
    yield _csv_line(FIELDS)
    for entry in entries:
        fields = _fields(entry)
        if entry.label is not None and entry.label.startswith(FORMULA):
            fields["label"] = f"'{entry.label}"
        yield _csv_line(fields.values())


def chain_lines(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Every row with its signature: with key and anchor, all that `verify` needs."""
    return map(dump_line, entries)


def _fields(entry: Entry) -> dict[str, Any]:
    times = {"opened": iso_time(entry.opened_us), "closed": iso_time(entry.closed_us or 0)}
    return {name: times[name] if name in times else getattr(entry, name) for name in FIELDS}


def _csv_line(values: Iterable[object]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue().encode()
