"""What a JSON schema adds to the sampling of a row, at the default model's vocabulary.

Run `python benchmarks/grammar_time.py`. The model is fetched for its tokenizer alone; logits are
random. Times are medians over the tokens of one answer, on the machine's usual number of threads.
"""

import json
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from rich.console import Console

from plancha.messages import Int32s
from plancha.plans import Join
from plancha.sampling import Sampling
from plancha_engine.grammar import JsonGrammars
from plancha_engine.model_name import resolve
from plancha_engine.report import ConsoleReport
from plancha_engine.sampler import Sampler
from plancha_text.text import from_gguf

ROWS = (1, 8, 64)
TOKENS = 60
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 40},
            "age": {"type": "integer", "minimum": 0},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 10},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": False,
    }
)
SAMPLINGS = {
    "greedy": Sampling(temperature=0),
    "top_p 0.95": Sampling(temperature=0.8, top_p=0.95),
    "top_k 50": Sampling(temperature=0.8, top_k=50),
}


def main() -> None:
    text = from_gguf(Path(resolve("smollm2", ConsoleReport(Console(stderr=True)))))
    tokens = [text.plain_bytes(token) for token in range(text.vocabulary)]
    started_s = perf_counter()
    grammars = JsonGrammars(tokens, text.stop_ids, max(ROWS))
    print(f"vocabulary of {text.vocabulary}: {perf_counter() - started_s:.3f} s, once")
    started_s = perf_counter()
    grammars.join(_join(0, SCHEMA, Sampling(), text.stop_ids))
    print(f"schema: {(perf_counter() - started_s) * 1e3:.1f} ms, once for equal ones")
    print("sampling       rows   free us/row   held us/row")
    for name, sampling in SAMPLINGS.items():
        for rows in ROWS:
            free, held = (
                _step_s(grammars, schema, sampling, rows, text.stop_ids) / rows * 1e6
                for schema in (None, SCHEMA)
            )
            print(f"{name:<12} {rows:>6} {free:>13.0f} {held:>13.0f}")


def _step_s(
    grammars: JsonGrammars,
    schema: str | None,
    sampling: Sampling,
    rows: int,
    stop_ids: tuple[int, ...],
) -> float:
    """Seconds that the sampling of one step takes."""
    vocabulary = grammars.vocabulary
    sampler = Sampler(rows, vocabulary, grammars)
    for slot in range(rows):
        sampler.join(_join(slot, schema, sampling, stop_ids))
    slots = np.arange(rows, dtype=np.int32)
    token_ids: Int32s = np.zeros((rows, TOKENS + 1), np.int32)
    numbers = np.random.default_rng(1)
    times = []
    for length in range(1, TOKENS + 1):
        logits = numbers.standard_normal((rows, vocabulary), np.float32) * 3
        lengths = np.full(rows, length, np.int32)
        started_s = perf_counter()
        drawn, failed = sampler.sample(logits, slots, lengths, token_ids)
        times.append(perf_counter() - started_s)
        assert not failed.any()
        token_ids[:, length] = drawn
    grammars.reset()
    return median(times)


def _join(slot: int, schema: str | None, sampling: Sampling, stop_ids: tuple[int, ...]) -> Join:
    prompt = np.zeros(1, np.int32)
    return Join(slot, slot, prompt, 1, stop_ids, slot, sampling, grammar=schema)


if __name__ == "__main__":
    main()
