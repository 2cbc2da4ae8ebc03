"""The other side of `mixed_job.py`: `transformers` on the same weights, in a process of its own.

    python benchmarks/transformers_generate.py single 12
    python benchmarks/transformers_generate.py static 64
    python benchmarks/transformers_generate.py weights 0

Prints one JSON object. `weights` times a matrix-vector product over as many bytes as the model's
weights have: one token at a time cannot be faster than that.
"""

import sys
import time
from itertools import cycle, islice
from typing import Any

import orjson
import torch
import transformers
from rich.console import Console

from plancha_engine.checkpoint import open_checkpoint
from plancha_engine.model_name import resolve
from plancha_engine.report import ConsoleReport

MODEL = "smollm2"
PROMPT_TOKENS = 128
OUTPUT_TOKENS = (16, 32, 64, 128)
STATIC_BATCH = 32


def load_model() -> Any:
    """The default model in float32, from the very tensors that our engine computes with."""
    checkpoint = open_checkpoint(resolve(MODEL, ConsoleReport(Console(stderr=True))))
    found = checkpoint.config
    config = transformers.LlamaConfig(
        vocab_size=found.vocabulary,
        hidden_size=found.hidden,
        intermediate_size=found.intermediate,
        num_hidden_layers=found.layers,
        num_attention_heads=found.heads,
        num_key_value_heads=found.kv_heads,
        max_position_embeddings=found.context_length,
        rms_norm_eps=found.norm_epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": found.rope_theta},
        tie_word_embeddings=found.tied_head,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=0,
    )
    llama: Any = transformers.LlamaForCausalLM
    model = llama(config).eval()
    missing = model.load_state_dict(checkpoint.load(), strict=False).missing_keys
    assert set(missing) <= {"lm_head.weight"}, missing
    return model


def generate(model: Any, lengths: list[int]) -> int:
    """One batch, computed until its longest answer is done. The tokens that were asked for."""
    prompts = torch.randint(300, 4000, (len(lengths), PROMPT_TOKENS))
    longest = max(lengths)
    output = model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        do_sample=False,
        min_new_tokens=longest,
        max_new_tokens=longest,
    )
    assert output.shape == (len(lengths), PROMPT_TOKENS + longest)
    return sum(lengths)


def timed(model: Any, requests: int, batch: int) -> dict[str, float]:
    """Tokens and seconds of so many requests of the mixed job, `batch` at a time."""
    lengths = list(islice(cycle(OUTPUT_TOKENS), requests))
    generate(model, [4])  # the first call is slower
    began = time.perf_counter()
    tokens = sum(generate(model, lengths[i : i + batch]) for i in range(0, requests, batch))
    return {"output_tokens": tokens, "seconds": time.perf_counter() - began}


def weights_rate(model: Any) -> dict[str, float]:
    """Bytes of weights that each token reads, and how fast this machine reads such."""
    numbers = sum(parameter.numel() for parameter in model.parameters())
    width = model.config.hidden_size
    matrix, vector = torch.rand(numbers // width, width), torch.rand(width)
    seconds = []
    for _ in range(10):
        began = time.perf_counter()
        torch.mv(matrix, vector)
        seconds.append(time.perf_counter() - began)
    return {"bytes": 4 * numbers, "bytes_per_s": 4 * numbers / sorted(seconds)[len(seconds) // 2]}


def main(mode: str, requests: int) -> None:
    """Run one mode and print what came of it."""
    torch.manual_seed(0)
    with torch.inference_mode():
        model = load_model()
        if mode == "weights":
            found = weights_rate(model)
        else:
            found = timed(model, requests, STATIC_BATCH if mode == "static" else 1)
    print(orjson.dumps(found).decode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
