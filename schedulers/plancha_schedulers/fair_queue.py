"""Tenants held even in the tokens they are served, whatever each of them asks for.

The virtual token counter of Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024:
each tenant has a counter of what it was served, divided by its weight, and the one with the least
goes next. No slot stays empty while somebody waits, and what two tenants that always wait are
served differs by no more than a bound that does not grow with time.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from itertools import islice, zip_longest
from typing import Any

from plancha.contracts import Site
from plancha.options import structure
from plancha.sequence import Sequence
from plancha_schedulers.accounts import Accounts
from plancha_schedulers.line import Line
from plancha_schedulers.prices import Prices


def fair_queue(options: Mapping[str, Any], site: Site) -> "FairQueue":
    """The entry point; `Prices` are its options. Raises `OptionsError`."""
    return FairQueue(structure(options, Prices, "scheduler"), site)


class FairQueue:
    """First who was preempted, in order of acceptance; then the tenants, the least served first.

    Within a tenant it is first come, first served. A prompt is paid for when its sequence first
    joins, an output token when it is there; a cancelled sequence gets nothing back, and a preempted
    one pays nothing twice.
    """

    def __init__(self, prices: Prices, site: Site) -> None:
        self._prices = prices
        self._accounts = Accounts(site)
        self._preempted = Line()

    def add(self, sequence: Sequence, now: float) -> None:
        """A newcomer to its tenant's line, a preempted one to the line before all others."""
        if sequence.joined_once:
            self._preempted.add(sequence)
        else:
            self._accounts.line_up(sequence)

    def waiting(self, now: float) -> Iterator[Sequence]:
        """The heads, then every tenant's second, its third, and so on.

        So a tenant whose head does not fit, or that may not run more, stands in nobody's way.
        """
        yield from self.heads()
        later = (islice(account.line, 1, None) for account in self._accounts)
        for rank in zip_longest(*later):
            yield from (sequence for sequence in rank if sequence is not None)

    def heads(self) -> Iterator[Sequence]:
        """Who was preempted, and then of every tenant who was accepted first."""
        yield from tuple(self._preempted)
        yield from (account.line.head for account in self._accounts if account.line)

    def joined(self, sequence: Sequence, cached: int) -> None:
        """It leaves its line; the first time its tenant pays for the prompt."""
        if sequence.joined_once:
            self._preempted.remove(sequence)
        else:
            self._accounts.serve(sequence, self._prices.prompt(sequence, cached))

    def victims(self, running: Seq[Sequence], for_: Sequence) -> Iterator[Sequence]:
        """From the tenant served most, its newest first; none for who has no place itself.

        Only those further down this order than `for_`: it gives way itself before it takes from a
        tenant served less, or from an older sequence of its own.
        """
        if for_.slot is None:
            return iter(())
        own = self.standing(for_)
        below = (sequence for sequence in running if self.standing(sequence) > own)
        return iter(sorted(below, key=self.standing, reverse=True))

    def charge(self, output: Mapping[str, int]) -> None:
        """Output tokens are paid for as they come."""
        for tenant, tokens in output.items():
            self._accounts.charge(tenant, self._prices.output(tokens))
        self._accounts.sort()

    def remove(self, sequence: Sequence) -> None:
        """It leaves whatever line it stands in."""
        self._preempted.remove(sequence)
        self._accounts.drop(sequence)

    def why(self, sequence: Sequence) -> str | None:
        """Others of its tenant came before it, or it is another tenant's turn."""
        first = next(self.heads(), None)
        if first is None or first is sequence:
            return None
        line = self._preempted if sequence.joined_once else self._accounts.of(sequence).line
        is_head = sequence in line and line.head is sequence
        return "share" if is_head and first.tenant != sequence.tenant else "order"

    def standing(self, sequence: Sequence) -> tuple[float, int]:
        """What its tenant was served, and its arrival: the greater one gives way first."""
        return self._accounts.of(sequence).counter, sequence.arrival
