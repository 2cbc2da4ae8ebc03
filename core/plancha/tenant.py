"""Those who share the machine, and what each of them may take."""

import attrs


@attrs.frozen(kw_only=True)
class Tenant:
    """One of those who share the machine."""

    weight: float = 1.0  # of its share beside others of its tier
    tier: int = 0  # lower goes first
    max_running: int | None = None  # sequences in the batch at once
    max_waiting: int | None = None  # sequences outside it, beyond what it has free slots for
    tokens_per_minute: int | None = None  # prompt and output together


ANYBODY = Tenant()
"""What a tenant is that the deployment does not name."""
