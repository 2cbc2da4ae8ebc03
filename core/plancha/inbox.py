"""What the scheduling task receives."""

import attrs

from plancha.messages import Controls, Reload
from plancha.plans import StepDone, StepFailed
from plancha.sequence import Sequence


@attrs.frozen(eq=False)
class Admitted:
    """The sequences of one accepted request.

    Those that wait in the tiers `shed`, and have not begun, must go for it.
    """

    sequences: tuple[Sequence, ...]
    shed: tuple[int, ...] = ()


@attrs.frozen
class LedgerTurned:
    """The ledger cannot be written to any more, or can again: gateways are to hear of it."""


Inbox = Admitted | Controls | Reload | LedgerTurned | StepDone | StepFailed
