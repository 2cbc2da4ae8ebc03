"""Any order of writes, repeats and restarts, beside a dictionary that says what must be there."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ledger_places import NEVER, Place, closed, counts, opened
from plancha.ledger import Closed, Counts, Opened
from plancha_ledger.anchor import Anchor
from plancha_ledger.sqlite_file import SqliteFile

REQUESTS = st.sampled_from("abcde")
NUMBERS = st.integers(0, 50)
OUTCOMES = st.sampled_from(("completed", "cancelled", "failed", "stalled"))
Write = tuple[list[Opened], list[Counts], list[Closed]]


class LedgerMachine(RuleBasedStateMachine):
    """`model`: what is known of each request: its outcome (None: open) and its counts."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.place = Place(Path(self.folder.name))
        self.model: dict[str, list[Any]] = {}
        self.written: list[Write] = []
        self.file = self.start()

    def start(self) -> SqliteFile:
        anchor = Anchor(self.place.anchor, self.place.key, "worker")
        file = SqliteFile(Path(self.place.store), anchor, lambda: NEVER)
        file.open()
        return file

    def teardown(self) -> None:
        self.file.close()
        self.folder.cleanup()

    def expect(self, write: Write) -> None:
        for new in write[0]:
            self.model.setdefault(new.request, [None, 0, 0])
        for each in write[1]:
            seen = self.model.get(each.request)
            if seen is not None and seen[0] is None:
                seen[1:] = max(seen[1], each.input_tokens), max(seen[2], each.output_tokens)
        for end in write[2]:
            seen = self.model[end.counts.request]
            if seen[0] is None:
                seen[:] = end.outcome, end.counts.input_tokens, end.counts.output_tokens

    @rule(
        new=st.lists(REQUESTS, max_size=3),
        counted=st.lists(st.tuples(REQUESTS, NUMBERS, NUMBERS), max_size=3),
        ended=st.lists(st.tuples(REQUESTS, NUMBERS, NUMBERS, OUTCOMES), max_size=3),
    )
    def write(self, new: list[str], counted: list[Any], ended: list[Any]) -> None:
        there = {*self.model, *new}
        write: Write = (
            [opened(name) for name in new],
            [counts(*each) for each in counted],
            [closed(counts(*end[:3]), end[3]) for end in ended if end[0] in there],
        )
        self.file.write(*write)
        self.expect(write)
        self.written.append(write)

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        write = data.draw(st.sampled_from(self.written))
        self.file.write(*write)
        self.expect(write)

    @rule()
    def restart(self) -> None:
        """To the ledger it is all the same whether its writer went in peace."""
        self.file.close()
        self.file = self.start()
        for seen in self.model.values():
            seen[0] = seen[0] or "failed"

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        for name in "abcde":
            record = self.file.find(name)
            expected = self.model.get(name)
            assert (record is None) == (expected is None)
            if record is not None:
                assert [record.outcome, record.input_tokens, record.output_tokens] == expected
        report = self.place.verify()
        assert report.findings == []
        assert sum(each.requests for each in report.writers.values()) == sum(
            seen[0] is not None for seen in self.model.values()
        )


LedgerMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=15, deadline=None)
TestLedgerMachine = LedgerMachine.TestCase
