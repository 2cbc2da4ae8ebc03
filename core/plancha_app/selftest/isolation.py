"""What is checked: prefix cache, other people's requests, labels; and how long things take."""

import string
from collections.abc import AsyncIterator
from random import SystemRandom
from statistics import median
from typing import Any

import attrs

from plancha_app.selftest.ranks import p_value
from plancha_app.selftest.tenant import Answered, SelftestError, Tenant

WORD_CHARACTERS = 7
CERTAIN = 0.01
"""Below this the times are told to differ; of a hundred runs on a sound server one does."""

COMPLETE = "came to its end"
PLACES = ("", "/usage", "/text", "/trace")
COMMON = ("/v1/models", "/metrics", "/openapi.json", "/health/ready", "/health/live")


@attrs.frozen
class Check:
    """One row of the table. `holds` None: for information, since times are never exact."""

    name: str
    holds: bool | None
    detail: str


@attrs.frozen(kw_only=True)
class Trial:
    """How much is asked. Prompts are random words, `characters` long, after `prefix`."""

    characters: int = 800
    rounds: int = 12
    prefix: str = ""

    def prompt(self) -> str:
        """One that nobody has ever sent."""
        words = -(-self.characters // WORD_CHARACTERS)
        return f"{self.prefix}{' '.join(_word() for _ in range(words))}"[: self._length]

    @property
    def _length(self) -> int:
        return len(self.prefix) + self.characters


async def isolation(a: Tenant, b: Tenant, trial: Trial) -> AsyncIterator[Check]:
    """Every check in turn. Raises `SelftestError` when the server cannot be tested."""
    async for check in _cache(a, b, trial):
        yield check
    async for check in _requests(a, b, trial):
        yield check
    async for check in _times(a, b, trial):
        yield check


async def _cache(a: Tenant, b: Tenant, trial: Trial) -> AsyncIterator[Check]:
    prompt = trial.prompt()
    first, again = await a.ask(prompt), await a.ask(prompt)
    across, within = await b.ask(prompt), await b.ask(prompt)
    yield _tokens("a new prompt of A's hits nothing", first, hit=False)
    yield _tokens("A's own prompt hits", again, hit=True)
    yield _tokens("A's prompt hits nothing of A's for B", across, hit=False)
    yield _tokens("and then hits what B computed", within, hit=True)


def _tokens(name: str, answered: Answered, *, hit: bool) -> Check:
    found = answered.cached_tokens
    detail = f"{found} cached tokens"
    if hit and not found:
        detail += "; is there a prefix cache? Without one the checks show nothing"
    return Check(name, (found > 0) == hit, detail)


async def _requests(a: Tenant, b: Tenant, trial: Trial) -> AsyncIterator[Check]:
    """One of A's that runs, and one that has ended, as B sees them."""
    label, prompt = f"label-{_word()}-{_word()}", trial.prompt()
    ended = await a.ask(prompt, label, 4)
    async with a.stream(prompt, label, 64) as (running, events):
        await anext(events)
        for state, request in (("running", running), ("ended", ended.id)):
            async for check in _hidden(b, request, state):
                yield check
        outcome = await _outcome(events)
    name = "A's running request is not ended by B's cancel"
    yield Check(name, outcome == COMPLETE, outcome)
    seen = await a.look(f"/v1/requests/{ended.id}/usage")
    yield Check("A sees the usage of its own request", seen.status == 200, f"status {seen.status}")
    async for check in _unsaid(b, [label, running, ended.id, prompt[-40:]], label):
        yield check


async def _outcome(events: AsyncIterator[dict[str, Any]]) -> str:
    try:
        ends = [event async for event in events if "usage" in event]
    except SelftestError as error:
        return str(error)
    return COMPLETE if ends else "broken off"


async def _hidden(b: Tenant, request: str, state: str) -> AsyncIterator[Check]:
    """B is told of it what it is told of none."""
    unknown = request[:-8] + "0" * 8
    looks = [*(("GET", place) for place in PLACES), ("POST", "/cancel"), ("DELETE", "/text")]
    for method, place in looks:
        theirs = await b.look(f"/v1/requests/{request}{place}", method)
        nobodys = await b.look(f"/v1/requests/{unknown}{place}", method)
        same = theirs.body.replace(request, "") == nobodys.body.replace(unknown, "")
        holds = theirs.status in (404, 405) and theirs.status == nobodys.status and same
        what = f"{method} {place or 'status'} of a request of A's that has {state}".replace(
            "has running", "is running"
        )
        detail = f"status {theirs.status}" + ("" if same else "; not as of an unknown one")
        yield Check(f"B: {what}", holds, detail)


async def _unsaid(b: Tenant, secrets: list[str], label: str) -> AsyncIterator[Check]:
    """Nothing that B can read names anything of A's."""
    own = await b.ask(_word())
    paths = [*COMMON, f"/v1/requests/{own.id}", f"/v1/requests/{own.id}/trace"]
    found = []
    for path in paths:
        seen = await b.look(path)
        if any(secret in seen.all for secret in secrets):
            found.append(path)
    where = f"in {', '.join(found)}" if found else f"in none of {len(paths)} places"
    yield Check("no id, label or text of A's is in B's sight", not found, where)
    twin = await b.ask(_word(), label)
    by_label = await b.look(f"/v1/requests/{label}")
    holds = twin.id not in secrets and by_label.status == 404
    yield Check("a label of A's names nothing for B", holds, f"status {by_label.status}")


async def _times(a: Tenant, b: Tenant, trial: Trial) -> AsyncIterator[Check]:
    """Whether B's first token of A's prompt comes sooner than of a new one."""
    as_a, fresh, own = list[float](), list[float](), list[float]()
    cached = 0
    for number in range(trial.rounds):
        prompt, new = trial.prompt(), trial.prompt()
        await a.ask(prompt)
        turns = [(prompt, as_a), (new, fresh)]
        for text, times in turns if number % 2 else reversed(turns):  # no order is favoured
            answered = await b.ask(text)
            times.append(answered.ttft_s)
            cached += answered.cached_tokens
        own.append((await b.ask(prompt)).ttft_s)
    yield Check(
        f"{trial.rounds} prompts of A's and as many new ones hit nothing for B",
        cached == 0,
        f"{cached} cached tokens",
    )
    p = p_value(as_a, fresh)
    verdict = "differ: look closer, or run it again" if p < CERTAIN else "do not differ"
    yield Check(
        "B's first token of A's prompts and of new ones",
        None,
        f"{_ms(as_a)} and {_ms(fresh)} (medians); {verdict} (p = {p:.2f})",
    )
    yield Check(
        "and of B's own cached prompts, to compare",
        None,
        f"{_ms(own)}; against new ones p = {p_value(own, fresh):.2f}",
    )


def _ms(times: list[float]) -> str:
    return f"{median(times) * 1000:.1f} ms"


def _word() -> str:
    return "".join(SystemRandom().choices(string.ascii_lowercase, k=WORD_CHARACTERS - 1))


__all__ = ["Check", "SelftestError", "Trial", "isolation"]
