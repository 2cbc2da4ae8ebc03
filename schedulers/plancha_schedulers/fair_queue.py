"""Tenants held even in the tokens they are served, whatever each of them asks for.

The virtual token counter of Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024:
each tenant has a counter of what it was served, divided by its weight, and the one with the least
goes next. No slot stays empty while somebody waits, and two tenants that both always wait are
served the same, but for a bound that does not grow with time.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from itertools import islice, zip_longest
from typing import Any

import attrs

from plancha.contracts import Site
from plancha.options import structure
from plancha.sequence import Sequence
from plancha_schedulers.line import Line
from plancha_schedulers.prices import Prices


def fair_queue(options: Mapping[str, Any], site: Site) -> "FairQueue":
    """The entry point; `Prices` are its options. Raises `OptionsError`."""
    return FairQueue(structure(options, Prices, "scheduler"), site)


@attrs.define(eq=False)
class Account:
    """One tenant: what it was served, and its sequences that never joined yet."""

    weight: float
    counter: float = 0.0  # virtual tokens, by weight; never falls
    line: Line = attrs.field(factory=Line)

    def charge(self, price: float) -> None:
        """It was served that much."""
        self.counter += price / self.weight


class FairQueue:
    """First whoever was preempted, in order of acceptance; then the tenants, least served first.

    Within a tenant it is first come, first served. A prompt is paid for when its sequence first
    joins, an output token when it is there; a cancelled sequence gets nothing back, and a preempted
    one pays nothing twice.
    """

    def __init__(self, prices: Prices, site: Site) -> None:
        self._prices = prices
        self._site = site
        self._preempted = Line()
        self._accounts: dict[str, Account] = {}
        self._backlogged: list[Account] = []  # those with a line, sorted by `_urgency`
        self._last: Account | None = None  # whose line was the last to become empty
        self._served = 0.0  # greatest counter that anyone joined at

    def add(self, sequence: Sequence, now: float) -> None:
        """A tenant that had nobody waiting is lifted: being away earns no credit."""
        if sequence.joined_once:
            self._preempted.add(sequence)
            return
        account = self._account(sequence.tenant)
        if not account.line:
            account.counter = max(account.counter, self._floor())
        self._unrank(account)
        account.line.add(sequence)
        self._rank(account)

    def waiting(self, now: float) -> Iterator[Sequence]:
        """The heads, then every tenant's second, its third, and so on.

        So a tenant whose head does not fit, or that may not run more, stands in nobody's way.
        """
        yield from self.heads()
        later = [islice(account.line, 1, None) for account in self._backlogged]
        for rank in zip_longest(*later):
            yield from (sequence for sequence in rank if sequence is not None)

    def heads(self) -> Iterator[Sequence]:
        """Who was preempted, and of every tenant who has waited longest."""
        yield from tuple(self._preempted)
        yield from (account.line.head for account in tuple(self._backlogged) if account.line)

    def joined(self, sequence: Sequence, cached: int) -> None:
        """It leaves its line; the first time its tenant pays for the prompt."""
        if sequence.joined_once:
            self._preempted.remove(sequence)
            return
        account = self._account(sequence.tenant)
        self._served = max(self._served, account.counter)
        self._unrank(account)
        account.line.remove(sequence)
        account.charge(self._prices.prompt(sequence, cached))
        self._rank(account)

    def victims(self, running: Seq[Sequence], for_: Sequence) -> Iterator[Sequence]:
        """From the tenant served most, its newest first; none for somebody who is yet to join.

        Only those further down this order than `for_`: it gives way itself before it takes from a
        tenant served less, or from an older sequence of its own.
        """
        if for_.slot is None:
            return iter(())
        own = self.standing(for_)
        below = (sequence for sequence in running if self.standing(sequence) > own)
        return iter(sorted(below, key=self.standing, reverse=True))

    def charge(self, output: Mapping[str, int]) -> None:
        """Tenants without an account here never joined here: they pay elsewhere."""
        for tenant, tokens in output.items():
            if tenant in self._accounts:
                self._accounts[tenant].charge(self._prices.output(tokens))
        self._backlogged.sort(key=_urgency)

    def remove(self, sequence: Sequence) -> None:
        """It leaves the line it stands in, if any."""
        self._preempted.remove(sequence)
        account = self._account(sequence.tenant)
        if sequence in account.line:
            self._unrank(account)
            account.line.remove(sequence)
            self._rank(account)

    def standing(self, sequence: Sequence) -> tuple[float, int]:
        """What its tenant was served, and its arrival: a greater one gives way first."""
        return self._account(sequence.tenant).counter, sequence.arrival

    def _account(self, tenant: str) -> Account:
        if tenant not in self._accounts:
            self._accounts[tenant] = Account(self._site.tenant(tenant).weight)
        return self._accounts[tenant]

    def _floor(self) -> float:
        """The paper's lift: the least counter of those who wait, else that of who waited last.

        The least one may be of a tenant that its running limit holds back, far behind all others:
        what others have joined at since counts more.
        """
        if self._backlogged:
            return max(self._backlogged[0].counter, self._served)
        return 0.0 if self._last is None else self._last.counter

    def _unrank(self, account: Account) -> None:
        """Before its counter or its head changes."""
        if account.line:
            del self._backlogged[bisect_left(self._backlogged, _urgency(account), key=_urgency)]

    def _rank(self, account: Account) -> None:
        if account.line:
            insort(self._backlogged, account, key=_urgency)
        else:
            self._last = account


def _urgency(account: Account) -> tuple[float, int]:
    return account.counter, account.line.head.arrival
