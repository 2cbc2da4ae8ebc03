"""What the scheduling task receives."""

import attrs

from plancha.messages import Controls, Reload, StepDone, StepFailed
from plancha.sequence import Sequence


@attrs.frozen(eq=False)
class Admitted:
    """The sequences of one accepted request."""

    sequences: tuple[Sequence, ...]


Inbox = Admitted | Controls | Reload | StepDone | StepFailed
