"""JSON schemas as grammars, through llguidance (the extra `grammar`): one way to compile them.

Run as a program, it reads a schema and says whether a worker may be given it. That takes a process
of its own: of what strangers send, some schemas under 10 kB overflow llguidance's stack (a chain
of 1,000 `$ref`s) or take it seconds and gigabytes (`{"type": "integer", "multipleOf": 999999}`:
13 s and 0.5 GB), and none of its limits is about those. `$ref`s to anywhere else are refused by
llguidance itself, which fetches nothing.
"""

import json
import os
import resource
import sys
import threading
import time
from collections.abc import Sequence

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

WHITESPACE = r" |\n[ \t]{0,32}"
"""Between JSON's parts at most this once. Without a bound, small models go on with it for ever."""

LIMITS = LLParserLimits(
    initial_lexer_fuel=200_000,  # about 50,000 a millisecond
    step_lexer_fuel=100_000,  # about 14,000 a millisecond
    max_lexer_states=20_000,  # 1 to 2 kB each
    max_grammar_size=50_000,
    verbose_errors=False,  # they would hold outputs
)

MOST_COMPILE_S = 0.1
"""Of processor time, for the grammar and its first mask: a worker's whole batch waits as long.

Beside the step, in another thread, it would wait too: while it compiles, llguidance lets no other
thread of the process run Python (measured: as long as the compilation itself, 28 of 28 ms).
"""

CHECK_CPU_S, CHECK_MEMORY, CHECK_STACK = 1, 512 * 2**20, 2**20
"""What a check may take before its process is ended; a worker's threads have eight such stacks."""

SHOWN_CHARACTERS = 300


class GrammarError(ValueError):
    """A schema that no output can be held to; the message says why, for whoever wrote it."""


class _Tokens:
    """What llguidance wants to know of a tokenizer. Text is never tokenised: nothing is forced."""

    bos_token_id = None
    special_token_ids = ()

    def __init__(self, tokens: Sequence[bytes], stop_ids: Sequence[int]) -> None:
        self.tokens = tokens
        self.eos_token_id = stop_ids[0]

    def __call__(self, text: bytes) -> list[int]:
        raise NotImplementedError


def vocabulary(tokens: Sequence[bytes], stop_ids: Sequence[int]) -> LLTokenizer:
    """A vocabulary to compile for: the text of every id, b"" for those that are none.

    `stop_ids` may follow a complete output; there must be one. Takes 0.1 s for 50,000 tokens.
    """
    wrapper = TokenizerWrapper(_Tokens(tokens, stop_ids))
    return LLTokenizer(wrapper, eos_token=list(stop_ids), slices=LLTokenizer.json_slices())


def compile_schema(tokenizer: LLTokenizer, schema: str) -> LLMatcher:
    """A matcher at its start, for JSON that follows `schema`, which is JSON as text.

    The model chooses how to spell what the schema leaves no choice about: llguidance would force
    the tokens of its own tokeniser there. Raises `GrammarError`.
    """
    try:
        grammar = LLMatcher.grammar_from_json_schema(
            schema,
            overrides={  # over whatever the schema itself says in "x-guidance"
                "item_separator": ",",
                "key_separator": ":",
                "whitespace_pattern": WHITESPACE,
                "coerce_one_of": False,
                "lenient": False,
            },
        )
    except ValueError as error:
        raise GrammarError(_shortened(str(error))) from None
    (json_grammar,) = json.loads(grammar)["grammars"]
    start = {"lark_grammar": '%llguidance {"no_forcing": true}\nstart: @schema'}
    both = {"grammars": [start, {**json_grammar, "name": "schema"}]}
    matcher = LLMatcher(tokenizer, json.dumps(both), log_level=0, limits=LIMITS)
    if matcher.is_error():
        raise GrammarError(_shortened(matcher.get_error()))
    return matcher


def problem_of(schema: str) -> str | None:
    """What is wrong with a schema, for whoever wrote it; None: nothing."""
    tokenizer = LLTokenizer("byte")
    started_s = time.process_time()
    try:
        matcher = compile_schema(tokenizer, schema)
    except GrammarError as error:
        return str(error)
    matcher.compute_bitmask()
    took_s = time.process_time() - started_s
    if matcher.is_stopped():
        return "Nothing can follow it."
    if took_s > MOST_COMPILE_S:
        return f"It takes {took_s * 1e3:.0f} ms to compile; it may take {MOST_COMPILE_S * 1e3:.0f}."
    return None


def _shortened(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 1]}…"


def _check() -> None:
    json.dump({"problem": problem_of(sys.stdin.read())}, sys.stdout)


if __name__ == "__main__":
    os.nice(10)  # a worker's steps go first
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CHECK_CPU_S, CHECK_CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (CHECK_MEMORY, CHECK_MEMORY))
    threading.stack_size(CHECK_STACK)
    thread = threading.Thread(target=_check)
    thread.start()
    thread.join()
