"""What each tenant was served, and who of its own waits: the virtual token counters."""

from bisect import bisect_left, insort
from collections.abc import Iterator

import attrs

from plancha.contracts import Site
from plancha.sequence import Sequence
from plancha_schedulers.line import Line


@attrs.define(eq=False)
class Account:
    """One tenant. Its counter is in virtual tokens, divided by its weight, and never falls."""

    counter: float = 0.0
    served_last: int = 0  # number of the latest turn that was its own
    line: Line = attrs.field(factory=Line)


class Accounts:
    """Every tenant's account; iterate over those with a line, the least served first.

    A price is divided by the weight that the tenant has when it pays.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._by_tenant: dict[str, Account] = {}
        self._backlogged: list[Account] = []  # sorted by `_urgency`
        self._last: Account | None = None  # whose line was the last to become empty
        self._turns = 0
        self._turn_at = 0.0  # greatest counter that anyone had when its turn came

    def __iter__(self) -> Iterator[Account]:
        return iter(tuple(self._backlogged))

    def of(self, sequence: Sequence) -> Account:
        """Its tenant's."""
        tenant = sequence.tenant
        if tenant not in self._by_tenant:
            self._by_tenant[tenant] = Account()
        return self._by_tenant[tenant]

    def line_up(self, sequence: Sequence) -> None:
        """A tenant that had nobody waiting is lifted: being away earns no credit."""
        account = self.of(sequence)
        if account.line:
            self._unrank(account)
        else:
            account.counter = max(account.counter, self._floor())
        account.line.add(sequence)
        self._rank(account)

    def serve(self, sequence: Sequence, price: float) -> None:
        """It leaves its line, for which its tenant pays."""
        account = self.of(sequence)
        self._unrank(account)
        self._turns += 1
        self._turn_at = max(self._turn_at, account.counter)
        account.served_last = self._turns
        account.line.remove(sequence)
        account.counter += price / self._site.tenant(sequence.tenant).weight
        self._rank(account)

    def drop(self, sequence: Sequence) -> None:
        """It leaves its line, if it stands in it."""
        account = self.of(sequence)
        if sequence in account.line:
            self._unrank(account)
            account.line.remove(sequence)
            self._rank(account)

    def charge(self, tenant: str, price: float) -> None:
        """Who never had anybody here pays elsewhere. `sort` must follow the last charge."""
        if tenant in self._by_tenant:
            self._by_tenant[tenant].counter += price / self._site.tenant(tenant).weight

    def sort(self) -> None:
        """Bring the order up to date with the counters."""
        self._backlogged.sort(key=_urgency)

    def _floor(self) -> float:
        """The least counter of those who wait, else that of who waited last, as in the paper.

        The least one may be of a tenant that its running limit holds back, far behind all others;
        so what others had when their turn came counts too. Without limits it is never the greater.
        """
        if self._backlogged:
            return max(self._backlogged[0].counter, self._turn_at)
        return 0.0 if self._last is None else self._last.counter

    def _unrank(self, account: Account) -> None:
        """Before its counter or its line changes."""
        del self._backlogged[bisect_left(self._backlogged, _urgency(account), key=_urgency)]

    def _rank(self, account: Account) -> None:
        if account.line:
            insort(self._backlogged, account, key=_urgency)
        else:
            self._last = account


def _urgency(account: Account) -> tuple[float, int, int]:
    """On a tie, as after a lift, whoever was served longest ago."""
    return account.counter, account.served_last, account.line.head.arrival
