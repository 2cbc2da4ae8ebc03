"""What is kept of each tenant's prompts and outputs, and until when: plain code, told the time."""

import math
from collections.abc import Mapping
from typing import Literal

import attrs

Retention = Literal["none", "hash"] | int
"""Nothing; keyed hashes and no text; or texts, for so many days."""

FEWEST_DAYS, MOST_DAYS = 1, 3650
DAY_S = 86_400.0


def is_retention(value: object) -> bool:
    """Whether `value` is one, and no number of days out of range."""
    if isinstance(value, int):
        return not isinstance(value, bool) and FEWEST_DAYS <= value <= MOST_DAYS
    return value in ("none", "hash")


@attrs.frozen
class Policy:
    """The operator's settings by tenant. Of a tenant that has none nothing is kept."""

    settings: Mapping[str, Retention] = attrs.field(factory=dict)

    def of(self, tenant: str) -> Retention:
        """The tenant's setting."""
        return self.settings.get(tenant, "none")

    def kept_from(self, tenant: str, now_s: float) -> float:
        """What began earlier than this is deleted. Wall clock, Unix seconds; inf: everything is."""
        match self.of(tenant):
            case "none":
                return math.inf
            case "hash":
                return -math.inf
            case days:
                return now_s - days * DAY_S

    def kept_until(self, tenant: str, created_s: float) -> float | None:
        """When what began at `created_s` is due to be deleted; None: not by its age."""
        setting = self.of(tenant)
        return created_s + setting * DAY_S if isinstance(setting, int) else None

    @property
    def keeps_anything(self) -> bool:
        """Whether anybody's setting asks for a place to keep it."""
        return any(setting != "none" for setting in self.settings.values())

    @property
    def hashes(self) -> bool:
        """Whether somebody's setting asks for a secret to hash with."""
        return "hash" in self.settings.values()
