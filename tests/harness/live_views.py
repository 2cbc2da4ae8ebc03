"""What `GET /v1/live` tells, made up: as large as a test wants it."""

from typing import Any

QUANTILES = {"count": 9, "p50_s": 0.12, "p99_s": 1.5}
NONE = {"count": 0, "p50_s": None, "p99_s": None}
NAMES = ("acme", "nightly-batch", "trial", *(f"tenant-{number}" for number in range(300)))


def live(
    *, at_s: float = 10.0, tenants: int = 3, sequences: int = 6, slots: int = 8, blocks: int = 64,
    generated: int = 1000, prompt: int = 5000, scope: str = "all",
) -> dict[str, Any]:  # fmt: skip
    """Blocks: a tenth cached, the rest by turns of four of each tenant's, a quarter shared."""
    cached = blocks // 10
    codes: list[int] = [1, cached] if cached else []
    for number in range((blocks - cached) // 4):
        code = 3 + 2 * (number % tenants) + (number % 4 == 3) if tenants else 0
        codes += [code, 4]
    codes += [0, blocks - sum(codes[1::2])]
    told: dict[str, Any] = {
        "object": "live",
        "scope": scope,
        "at_s": at_s,
        "kv": {
            "block_size": 16, "total_blocks": blocks, "used_share": 0.9,
            "used_blocks": blocks - cached, "cached_blocks": cached, "free_blocks": 0,
            "waste": 0.02, "host_blocks": 32, "host_free_blocks": 20,
            "map_stride": 1, "map": codes,
        },
        "batch": {
            "slots": slots, "used_share": sequences / slots, "running": sequences,
            "sequences": [_sequence(number, max(1, tenants)) for number in range(sequences)],
        },
        "tenants": [_tenant(number, blocks, generated) for number in range(tenants)],
        "counters": {
            "steps": 70, "generated_tokens": generated, "prompt_tokens": prompt,
            "cached_prompt_tokens": prompt // 4, "rejected": 5,
            "ended": {"stop": 30, "length": 3, "cancelled": 2, "error": 1},
            "preemptions": {"swapped": 4, "recompute": 7},
        },
        "recent": {"window_s": 30.0, "first_token": QUANTILES, "inter_token": QUANTILES},
    }  # fmt: skip
    if scope == "tenant":
        for name in ("used_blocks", "cached_blocks", "free_blocks", "waste", "host_blocks"):
            del told["kv"][name]
        del told["kv"]["host_free_blocks"]
        for name in ("steps", "cached_prompt_tokens", "rejected", "preemptions"):
            del told["counters"][name]
    return told


def _sequence(number: int, tenants: int) -> dict[str, Any]:
    return {
        "id": f"req-{number:032x}", "tenant": NAMES[number % tenants],
        "state": "prefill" if number % 5 == 4 else "decode", "prompt_tokens": 100,
        "computed_tokens": 50, "known_tokens": 100 + number, "limit_tokens": 200, "blocks": 7,
        "preemptions": number % 3, "age_s": 1.25,
    }  # fmt: skip


def _tenant(number: int, blocks: int, generated: int) -> dict[str, Any]:
    return {
        "name": NAMES[number], "tier": number % 2, "running": 2, "waiting": number * 3,
        "paused": 0, "longest_wait_s": 3.7, "preemptions": 1, "blocks": blocks // 4,
        "shared_blocks": 1, "prompt_tokens": 900, "generated_tokens": generated // 2,
        "first_token": QUANTILES, "inter_token": NONE if number == 1 else QUANTILES,
    }  # fmt: skip
