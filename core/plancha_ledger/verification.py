"""What an auditor asks of a ledger: is this what was written, all of it, and in this order?"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from plancha_ledger.anchor import Anchored, anchored_in, lines
from plancha_ledger.batch import IDENTITY, START, Head
from plancha_ledger.entry import Attempt, Entry, sign
from plancha_ledger.reading import Damaged, Stored

MOST_FINDINGS = 1000


@attrs.define
class Checked:
    """One writer's chain. `anchored`: the last of its rows that the anchor vouches for."""

    rows: int = 0
    requests: int = 0  # that ended
    running: int = 0  # that have not ended
    head: Head = START
    anchored: Head = START


@attrs.define
class Report:
    """What `verify` found: `findings`, the first of `found` in all, one line each."""

    writers: dict[str, Checked] = attrs.field(factory=dict)
    findings: list[str] = attrs.field(factory=list)
    found: int = 0
    signed: int = 0  # rows whose signature is right

    def add(self, place: str, what: str) -> None:
        """One more."""
        self.found += 1
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(f"{place}: {what}")


def verify(rows: Iterable[Stored], key: bytes, anchor: Path | None = None) -> Report:
    """Check `rows`, in order by writer and number, against the key and the anchor.

    Needs memory for what is open, not for what there is. Raises `LedgerError` when something
    cannot be read.
    """
    report = Report()
    anchored = set() if anchor is None else _check_lines(anchor, key, report)
    chain: _Chain | None = None
    for each in rows:
        number = each.number
        if number is None:
            assert isinstance(each, Damaged)
            report.add(each.writer, each.what)
            continue
        if chain is None or each.writer != chain.writer:
            if chain is not None:
                chain.end()
            chain = _Chain(each.writer, key, anchor, report)
        chain.row(each, number)
    if chain is not None:
        chain.end()
    for writer in sorted(anchored - report.writers.keys()):
        _Chain(writer, key, anchor, report).end()
    if report.signed == 0 and any(each.rows for each in report.writers.values()):
        report.findings = ["no row is signed with this key"]
        report.found = 1
    return report


def _check_lines(anchor: Path, key: bytes, report: Report) -> set[str]:
    """The writers that the anchor names."""
    writers = set()
    for number, line in enumerate(lines(anchor), 1):
        try:
            writers.add(anchored_in(key, line).writer)
        except ValueError as error:
            report.add(f"anchor, line {number}", str(error))
    return writers


def _heads(anchor: Path, key: bytes, writer: str) -> Iterator[tuple[int, Anchored]]:
    for number, line in enumerate(lines(anchor), 1):
        try:
            anchored = anchored_in(key, line)
        except ValueError:
            continue  # told by `_check_lines`
        if anchored.writer == writer:
            yield number, anchored


class _Chain:
    """One writer's rows, as they come by."""

    def __init__(self, writer: str, key: bytes, anchor: Path | None, report: Report) -> None:
        self.writer = writer
        self.checked = report.writers.setdefault(writer, Checked())
        self._key = key
        self._report = report
        self._previous: tuple[bytes, ...] = (START.mac,)  # MACs, one of which goes before
        self._epoch = 0
        self._open: dict[Attempt, Entry] = {}
        self._heads = iter(()) if anchor is None else _heads(anchor, key, writer)
        self._next = next(self._heads, None)

    def row(self, row: Stored, number: int) -> None:
        """The next one."""
        self.checked.rows += 1
        if not self._is_next(number):
            return
        if isinstance(row, Damaged):
            self._add(number, f"was edited: {row.what}")
            self._previous = () if row.mac is None else (row.mac,)
            mac = row.mac or b""
        else:
            self._check_signature(row)
            self._check_meaning(row)
            mac = row.mac
        self.checked.head = Head(number, mac)
        self._check_anchor(self.checked.head)

    def end(self) -> None:
        """There are no more."""
        last = self.checked.head.number
        ahead = 0
        line = 0
        while self._next is not None:
            if self._next[1].head.number > max(last, ahead):
                line, ahead = self._next[0], self._next[1].head.number
            self._forward()
        if ahead:
            what = f"{_rows(last + 1, ahead)} missing at the end; the anchor remembers row {ahead}"
            self._report.add(f"{self.writer}, anchor line {line}", what)
        for opening in self._open.values():
            if opening.epoch < self._epoch:
                what = "was left open by a server that is gone, and never closed by the next"
                self._add(opening.number, f"request {opening.request} {what}")
        self.checked.running = len(self._open)

    def _is_next(self, number: int) -> bool:
        wanted = self.checked.head.number + 1
        if number < wanted:
            self._add(number, f"comes after row {wanted - 1}, where it does not belong")
            return False
        if number > wanted:
            self._report.add(self.writer, f"{_rows(wanted, number - 1)} missing")
            self._previous = ()
        return True

    def _check_signature(self, row: Entry) -> None:
        """A row is also right after one of which only the MAC was edited."""
        rightly = [sign(self._key, previous, row) for previous in self._previous]
        if row.mac in rightly:
            self._report.signed += 1
        elif rightly:
            self._add(row.number, "was edited, or is another than was written here")
        self._previous = (row.mac, *(mac for mac in rightly if mac != row.mac))

    def _check_meaning(self, row: Entry) -> None:
        if row.epoch < self._epoch:
            self._add(row.number, f"was written by epoch {row.epoch} after epoch {self._epoch}")
        self._epoch = max(self._epoch, row.epoch)
        if row.kind == "open":
            self._open[row.key] = row
            return
        self.checked.requests += 1
        opening = self._open.pop(row.key, None)
        if opening is None:
            self._add(row.number, f"closes request {row.request}, which is not open here")
            return
        for name in IDENTITY:
            if getattr(row, name) != getattr(opening, name):
                self._add(row.number, f"{name} is another than at the opening, {opening.number}")

    def _check_anchor(self, head: Head) -> None:
        while self._next is not None and self._next[1].head.number <= head.number:
            line, anchored = self._next
            if anchored.head == head:
                self.checked.anchored = head
            elif anchored.head.number == head.number:
                self._add(head.number, f"is not the row that line {line} of the anchor remembers")
            self._forward()

    def _forward(self) -> None:
        before, self._next = self._next, next(self._heads, None)
        if before is None or self._next is None:
            return
        number, after = before[1].head.number, self._next[1].head.number
        if after < number:
            what = f"goes back from row {number} to row {after}: there was an older copy in use"
            self._report.add(f"{self.writer}, anchor line {self._next[0]}", what)

    def _add(self, number: int, what: str) -> None:
        self._report.add(f"{self.writer}, row {number}", what)


def _rows(first: int, last: int) -> str:
    return f"row {first} is" if first == last else f"rows {first} to {last} are"
