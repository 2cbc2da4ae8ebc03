"""`[tenants.NAME]` and `[tiers.N]`: who shares the machine, by which keys, and how much of it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from plancha.access import is_key_hash
from plancha.option_values import Check
from plancha.options import OptionsError, Problem, at_least, between, shown
from plancha_texts.options import TextsTable
from plancha_texts.retention import FEWEST_DAYS, MOST_DAYS, Retention, is_retention

NAME_RIGHT = "1 to 64 letters, digits, dots, dashes and underscores"
KEY_RIGHT = (
    'must be "sha256:" and 64 digits of 0-9 and a-f: what `plancha keys hash` makes of a key, '
    "never the key itself"
)
HIDDEN = '"…"'
BEST_TIER, WORST_TIER = 0, 99


def key_hashes(value: Any) -> tuple[str, ...]:
    """A list of hashes. Raises `OptionsError`, which never shows what may be a key."""
    if not isinstance(value, list | tuple):
        right = "must be a list, each text: the hashes of this tenant's keys"
        raise OptionsError((Problem(key="", value=HIDDEN, right=right),))
    problems = [
        Problem(key=f"[{index}]", value=HIDDEN, right=KEY_RIGHT)
        for index, each in enumerate(value)
        if not is_key_hash(each)
    ]
    if problems:
        raise OptionsError(tuple(problems))
    return tuple(value)


@attrs.frozen(kw_only=True)
class TenantTable:
    """One of those who share the machine.

    NAME has 1 to 64 letters, digits, dots, dashes and underscores. Of whoever is not in
    the file nothing is kept, and all else is at its default.
    """

    retention: Retention = attrs.field(
        validator=Check(f"of days from {FEWEST_DAYS} to {MOST_DAYS}", is_retention)
    )
    """What is kept of prompts and outputs: nothing, keyed hashes without text, or texts for so many
    days. The operator's decision, so there is no default."""

    keys: tuple[str, ...] = attrs.field(default=(), converter=key_hashes)
    """Hashes of this tenant's keys, each `sha256:` and 64 digits, as `plancha keys new` prints
    them. Two while a key is being replaced."""

    weight: float = attrs.field(default=1.0, validator=between(0.001, 1000))
    """Its share of the machine beside others."""

    tier: int = attrs.field(default=0, validator=between(BEST_TIER, WORST_TIER))
    """Lower goes first under `priority-preempt`; `[tiers.N]` may promise it something."""

    max_running: int | None = attrs.field(default=None, validator=at_least(1))
    """Answers that are generated side by side. Left out: no limit."""

    max_waiting: int | None = attrs.field(default=None, validator=at_least(1))
    """Sequences of it in the queue; beyond that its requests get a 429. Left out: as many as it
    leaves free."""

    tokens_per_minute: int | None = attrs.field(default=None, validator=at_least(1))
    """Prompt and output together; beyond that its requests get a 429. Left out: no limit."""

    models: tuple[str, ...] | None = None
    """Names of the models that exist for it. Left out: all."""

    operator: bool = False
    """Whether it sees figures, requests and texts of the whole server."""


@attrs.frozen(kw_only=True)
class TierTable:
    """What those of one tier may expect; N is 0, the best, to 99."""

    ttft_target_s: float | None = attrs.field(default=None, validator=between(0.001, 3600))
    """Time to the first token. A request that cannot have it by then is refused at once with a 429,
    worse tiers first. Left out: no target."""


def is_tenant_name(name: str) -> bool:
    """Whether a tenant may be called so: names appear in logs, in metrics and in cache keys."""
    return re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name) is not None


def tenant_problems(
    tenants: Mapping[str, TenantTable], tiers: Mapping[str, TierTable], anonymous: str | None
) -> Iterator[Problem]:
    """What is wrong between these tables, each of them being right by itself."""
    for name in tenants:
        if not is_tenant_name(name):
            yield Problem(key=f"tenants.{shown(name)}", value=None, right=f"must be {NAME_RIGHT}")
    yield from _keys_given_twice(tenants)
    for number in tiers:
        if number not in {str(tier) for tier in range(BEST_TIER, WORST_TIER + 1)}:
            right = f"must be a whole number from {BEST_TIER} to {WORST_TIER}, as in [tiers.0]"
            yield Problem(key=f"tiers.{shown(number)}", value=None, right=right)
    if anonymous is not None and anonymous not in tenants:
        names = f"one of this file: {', '.join(tenants)}" if tenants else "this file has none"
        right = f"must be the name of a tenant, {names}"
        yield Problem(key="server.anonymous", value=shown(anonymous), right=right)


def texts_problems(tenants: Mapping[str, TenantTable], texts: TextsTable) -> Iterator[Problem]:
    """Places that are needed to keep what tenants have kept, and are not named."""
    for name, table in tenants.items():
        if table.retention != "none" and texts.path is None:
            yield _place_missing("path", 'a file, such as "texts.db"', name, table.retention)
            break
    for name, table in tenants.items():
        if table.retention == "hash" and texts.secrets is None:
            yield _place_missing("secrets", 'a folder, such as "secrets"', name, "hash")
            break


def _place_missing(key: str, place: str, tenant: str, retention: Retention) -> Problem:
    why = f"tenants.{tenant}.retention = {shown(retention)} needs it"
    return Problem(key=f"texts.{key}", value=None, right=f"missing; must be {place}: {why}")


def _keys_given_twice(tenants: Mapping[str, TenantTable]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for name, table in tenants.items():
        for index, key in enumerate(table.keys):
            place = f"tenants.{name}.keys[{index}]"
            if key in first:
                right = f"is the same key as {first[key]}; each key belongs to one tenant, once"
                yield Problem(key=place, value=HIDDEN, right=right)
            first.setdefault(key, place)
