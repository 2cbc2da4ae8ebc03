"""Rotary positions, and the way of K and V into the paged pool."""

from numba import prange

from plancha.messages import Int32s
from plancha_engine.arrays import Float32s
from plancha_engine.kernels.compiling import inlined, kernel
from plancha_engine.kernels.norm import inverse_rms

_FEW_TOKENS = 4


@kernel(
    "void(f4[:,::1],i4[::1],i4[::1],i4[::1],f4[:,::1],f4[:,::1],f4[::1],f4[::1],f4,i8,"
    "f4[:,:,:,::1],f4[:,:,:,::1])",
    parallel=True,
)
def rotate_and_store(
    qkv: Float32s,
    positions: Int32s,
    blocks: Int32s,
    offsets: Int32s,
    cos: Float32s,
    sin: Float32s,
    query_norm: Float32s,
    key_norm: Float32s,
    epsilon: float,
    heads: int,
    keys: Float32s,
    values: Float32s,
) -> None:
    """Rotate the queries in place; the rotated keys and the values go into their blocks.

    `qkv` `[tokens, …]` holds queries, keys and values; `cos` and `sin` are
    `[context, head_dim / 2]`; `keys` are one layer's `[blocks, kv_heads, head_dim, block_size]`,
    `values` its `[blocks, kv_heads, block_size, head_dim]`. Norm weights are `[head_dim]`, or
    empty for none.
    """
    if qkv.shape[0] <= _FEW_TOKENS:
        for t in range(qkv.shape[0]):
            _token(
                qkv[t],
                cos[positions[t]],
                sin[positions[t]],
                query_norm,
                key_norm,
                epsilon,
                heads,
                keys[blocks[t], :, :, offsets[t]],
                values[blocks[t], :, offsets[t]],
            )
    else:
        for t in prange(qkv.shape[0]):
            _token(
                qkv[t],
                cos[positions[t]],
                sin[positions[t]],
                query_norm,
                key_norm,
                epsilon,
                heads,
                keys[blocks[t], :, :, offsets[t]],
                values[blocks[t], :, offsets[t]],
            )


@inlined
def _token(
    qkv: Float32s,
    cos: Float32s,
    sin: Float32s,
    query_norm: Float32s,
    key_norm: Float32s,
    epsilon: float,
    heads: int,
    keys: Float32s,
    values: Float32s,
) -> None:
    kv_heads, head_dim = keys.shape
    for head in range(heads):
        query = qkv[head * head_dim : (head + 1) * head_dim]
        _normalise_head(query, query_norm, epsilon)
        _rotate(query, cos, sin, query)
    for head in range(kv_heads):
        begin = (heads + head) * head_dim
        key = qkv[begin : begin + head_dim]
        _normalise_head(key, key_norm, epsilon)
        _rotate(key, cos, sin, keys[head])
        begin += kv_heads * head_dim
        values[head] = qkv[begin : begin + head_dim]


@inlined
def _normalise_head(x: Float32s, weight: Float32s, epsilon: float) -> None:
    if weight.size == 0:
        return
    scale = inverse_rms(x, epsilon)
    for i in range(x.size):
        x[i] *= scale * weight[i]


@inlined
def _rotate(x: Float32s, cos: Float32s, sin: Float32s, out: Float32s) -> None:
    half = cos.size
    for i in range(half):
        left, right = x[i], x[half + i]
        out[i] = left * cos[i] - right * sin[i]
        out[half + i] = right * cos[i] + left * sin[i]
