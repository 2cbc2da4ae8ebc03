"""Whether a request's output can be held to its JSON schema, asked before anything is promised."""

import json
import subprocess
import sys
from collections import OrderedDict, defaultdict
from hashlib import sha256
from importlib.util import find_spec

import anyio
import anyio.to_thread

from plancha.failure import Failure, RequestFailed, invalid
from plancha.sampling import Sampling

CHECK_TIMEOUT_S = 10.0
"""For a check's process, which has a second of processor time; a busy machine may be slow."""

REMEMBERED_SCHEMAS = 1000

PARAM = "response_format"

NO_GRAMMARS = Failure(
    "invalid",
    "This server's executor cannot hold this model's outputs to a schema: "
    'response_format must be left out or {"type": "text"}.',
    PARAM,
    "unsupported_parameter",
)
"""What the worker answers whose `Geometry.grammars` is false."""


def grammar_installed() -> bool:
    """Whether the extra `grammar` is there."""
    return find_spec("llguidance") is not None


class GrammarCheck:
    """Compiles each new schema once, in a process that may die of it (see `plancha.calls.grammar`).

    One at a time for each tenant, so that whoever sends bad ones waits for them alone. Remembered
    for each tenant by itself, so that how long it takes tells nothing of what others ask for.
    """

    def __init__(self) -> None:
        self._installed = grammar_installed()
        # By tenant and the schema's hash.
        self._problems: OrderedDict[tuple[str, bytes], str | None] = OrderedDict()
        self._turns: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    async def check(self, schema: str, sampling: Sampling, tenant: str) -> None:
        """Raises `RequestFailed`: "invalid" for what is the caller's mistake, or "unavailable"."""
        if not self._installed:
            raise invalid(
                PARAM,
                "This server cannot hold an output to a schema: its operator must install the "
                "extra grammar (pip install 'plancha[grammar]').",
                "unsupported_parameter",
            )
        _check_sampling(sampling)
        key = tenant, sha256(schema.encode()).digest()
        if key not in self._problems:
            async with self._turns[tenant]:
                if key not in self._problems:  # nobody before it asked the same
                    await self._compile(key, schema)
        problem = self._problems[key]
        if problem is not None:
            raise _unusable(problem)

    async def _compile(self, key: tuple[str, bytes], schema: str) -> None:
        thread = anyio.CapacityLimiter(1)  # of its own: turns are what bounds them
        self._problems[key] = await anyio.to_thread.run_sync(_ask, schema, limiter=thread)
        if len(self._problems) > REMEMBERED_SCHEMAS:
            self._problems.popitem(last=False)


def _unusable(problem: str) -> RequestFailed:
    message = f"The schema of response_format cannot be used: {problem}"
    return invalid(PARAM, message, "invalid_schema")


def _check_sampling(sampling: Sampling) -> None:
    """The schema says where an output ends; what says otherwise contradicts it."""
    if sampling.ignore_eos:
        raise invalid(
            "ignore_eos",
            "ignore_eos is true; with response_format it must be false: "
            "the output ends where the schema has it end.",
        )
    if sampling.min_tokens > 0:
        raise invalid(
            "min_tokens",
            f"min_tokens is {sampling.min_tokens}; with response_format it must be 0: "
            "the output ends where the schema has it end.",
        )


def _ask(schema: str) -> str | None:
    """`plancha.calls.grammar.problem_of` in a process of its own. Raises `RequestFailed`."""
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-m", "plancha.calls.grammar"],
            input=schema.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=CHECK_TIMEOUT_S,
            process_group=0,  # a Ctrl-C to the server says nothing of the schema
        )
    except subprocess.TimeoutExpired:
        message = "The schema could not be checked in time; try again."
        raise RequestFailed(Failure("unavailable", message, PARAM, "overloaded")) from None
    if process.returncode != 0 or not process.stdout:
        raise _unusable("It takes too much time or memory to compile.")
    problem: str | None = json.loads(process.stdout)["problem"]
    return problem
