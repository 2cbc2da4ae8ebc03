"""Drawing the next token of many rows at once, without sorting the vocabulary.

Tokens are ordered by weight, equal ones by id. Top-k, top-p and min-p each keep a head of that
order, so what is kept is known from the least weight kept and how many tokens of just that weight.
To find it, weights are counted in buckets by their float's leading bits, and only the bucket in
which the limit falls is sorted.
"""

import numpy as np
from numba import prange

from plancha.messages import Bools, Int32s, Int64s
from plancha_engine.arrays import Float32s, Float64s, UInt64s
from plancha_engine.kernels.compiling import inlined, kernel
from plancha_engine.kernels.exponential import exp
from plancha_engine.kernels.philox import uniform

NOT_FINITE = -1
"""Drawn for a row with a logit that is NaN or infinite."""

_BUCKET_SHIFT = 20  # leaves a float32's exponent and three bits of its fraction
_BUCKETS = (0x3F800000 >> _BUCKET_SHIFT) + 1  # weights go up to 1.0


@kernel(
    "void(f4[:,::1],i8,b1[::1],f4[::1],i4[::1],f8[::1],f4[::1],u8[::1],u8[::1],i4[::1])",
    parallel=True,
)
def draw(
    logits: Float32s,
    vocabulary: int,
    greedy: Bools,
    temperature: Float32s,
    top_k: Int32s,
    top_p: Float64s,
    min_p: Float32s,
    seed: UInt64s,
    index: UInt64s,
    tokens: Int32s,
) -> None:
    """`tokens[r]` from the first `vocabulary` logits of row r, which are overwritten.

    Temperature, then top-k (below 1 is off), then top-p of what that leaves, then min-p.
    Random number `index[r]` of `seed[r]` decides.
    """
    for r in prange(logits.shape[0]):
        row = logits[r, :vocabulary]
        best = _best(row)
        if best < 0 or greedy[r]:
            tokens[r] = best
        else:
            _weigh(row, row[best], temperature[r])
            least, ties = _limits(row, top_k[r], top_p[r])
            if min_p[r] > least:
                least, ties = min_p[r], vocabulary
            tokens[r] = _pick(row, least, ties, uniform(seed[r], index[r]))


@inlined
def _best(row: Float32s) -> int:
    """Where the first of the greatest is, or `NOT_FINITE`."""
    lanes = 32
    greatest = np.full(lanes, row[0])
    spoilt = np.zeros(lanes, np.float32)
    whole = row.size // lanes * lanes
    for start in range(0, whole, lanes):
        for lane in range(lanes):
            x = row[start + lane]
            greatest[lane] = x if x > greatest[lane] else greatest[lane]
            spoilt[lane] += x - x  # 0, but NaN for NaN and infinity
    for i in range(whole, row.size):
        greatest[0] = max(greatest[0], row[i])
        spoilt[0] += row[i] - row[i]
    if spoilt.sum() != 0:
        return NOT_FINITE
    best = greatest.max()
    for i in range(row.size):
        if row[i] == best:
            return i
    return NOT_FINITE


@inlined
def _weigh(row: Float32s, best: np.float32, temperature: np.float32) -> None:
    """Logits to weights: the best one's is 1."""
    scale = np.float32(1) / temperature
    for i in range(row.size):
        row[i] = exp((row[i] - best) * scale)


@inlined
def _limits(weights: Float32s, top_k: int, top_p: float) -> tuple[np.float32, int]:
    """The least weight that top-k and top-p keep, and how many tokens of that weight."""
    limited = 0 < top_k < weights.size
    if not limited and top_p >= 1:
        return np.float32(0), weights.size
    counts = np.zeros(_BUCKETS, np.int64)
    masses = np.zeros(_BUCKETS, np.float64)
    bits = weights.view(np.int32)
    for i in range(weights.size):
        bucket = bits[i] >> _BUCKET_SHIFT
        counts[bucket] += 1
        masses[bucket] += weights[i]
    wanted = top_k if limited else weights.size
    least, ties, mass = _cut(weights, counts, masses, wanted, np.inf)
    if top_p < 1:
        least, ties, _ = _cut(weights, counts, masses, wanted, top_p * mass)
    return least, ties


@inlined
def _cut(
    weights: Float32s,
    counts: Int64s,
    masses: Float64s,
    most_tokens: int,
    enough_mass: float,
) -> tuple[np.float32, int, float]:
    """The shortest head of the order with `most_tokens` tokens or `enough_mass`.

    As its least weight, the number of tokens with that weight, and its mass.
    """
    tokens, mass, bucket = 0, 0.0, _BUCKETS - 1
    while bucket > 0 and tokens + counts[bucket] < most_tokens:
        if mass + masses[bucket] >= enough_mass:
            break
        tokens += counts[bucket]
        mass += masses[bucket]
        bucket -= 1
    members = np.sort(_members(weights, bucket, counts[bucket]))
    least, ties = np.float32(np.inf), 0
    for i in range(members.size - 1, -1, -1):
        if tokens >= most_tokens or mass >= enough_mass:
            break
        ties = ties + 1 if members[i] == least else 1
        least = members[i]
        tokens += 1
        mass += least
    return least, ties, mass


@inlined
def _members(weights: Float32s, bucket: int, count: int) -> Float32s:
    members = np.empty(count, np.float32)
    bits = weights.view(np.int32)
    found = 0
    for i in range(weights.size):
        if bits[i] >> _BUCKET_SHIFT == bucket:
            members[found] = weights[i]
            found += 1
    return members


@inlined
def _pick(weights: Float32s, least: np.float32, ties: int, share: float) -> int:
    """The token at `share` of the kept mass, counted by id."""
    left, total = ties, 0.0
    for i in range(weights.size):
        if weights[i] > least:
            total += weights[i]
        elif weights[i] == least and left > 0:
            total += weights[i]
            left -= 1
    target, left, mass, last = share * total, ties, 0.0, 0
    for i in range(weights.size):
        kept = weights[i] > least
        if weights[i] == least and left > 0:
            kept = True
            left -= 1
        if kept and weights[i] > 0:
            mass += weights[i]
            last = i
            if mass > target:
                break
    return last


@kernel(
    "void(f4[:,::1],i8[::1],i4[:,::1],i4[::1],i4[::1],i4[::1],f4[::1],f4[::1],f4[::1])",
    parallel=True,
)
def penalise(
    logits: Float32s,
    rows: Int64s,
    token_ids: Int32s,
    slots: Int32s,
    prompt_tokens: Int32s,
    lengths: Int32s,
    repetition: Float32s,
    frequency: Float32s,
    presence: Float32s,
) -> None:
    """Row `rows[i]` of `logits` with the penalties for what `slots[i]` holds.

    Repetition (Keskar et al. 2019) for every id that occurs, then frequency and presence for
    those generated: at positions from `prompt_tokens[i]`.
    """
    for i in prange(rows.size):
        row = logits[rows[i]]
        ids = token_ids[slots[i], : lengths[i]]
        generated = np.full(row.size, -1, np.int32)
        for position in range(ids.size):
            token = ids[position]
            if generated[token] < 0:
                generated[token] = 0
                divided = row[token] / repetition[i]
                row[token] = divided if row[token] > 0 else row[token] * repetition[i]
        for position in range(prompt_tokens[i], ids.size):
            generated[ids[position]] += 1
        for position in range(prompt_tokens[i], ids.size):
            token = ids[position]
            if generated[token] > 0:
                row[token] -= frequency[i] * generated[token] + presence[i]
                generated[token] = 0
