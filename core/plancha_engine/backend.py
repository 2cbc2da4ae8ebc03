"""What a device must do for a decoder to run on it."""

from typing import Generic, Protocol, TypeVar

import attrs
import torch

from plancha.messages import Int32s, Int64s
from plancha_engine.arrays import Float32s
from plancha_engine.batch_tables import Batch

Array = TypeVar("Array")
"""A backend's own activations: float32 `[tokens, features]`."""

Matrix = TypeVar("Matrix")
"""A weight matrix with its bias, laid out as the backend wants it."""


@attrs.frozen(eq=False)
class Workspace(Generic[Array]):
    """The activations of one step, `[tokens, …]` each, in memory that outlives the step."""

    hidden: Array  # the residual stream, [tokens, hidden]
    normalised: Array  # [tokens, hidden]
    qkv: Array  # [tokens, (heads + 2 kv_heads) head_dim]
    attended: Array  # [tokens, heads head_dim]
    change: Array  # what a block adds to the residual stream, [tokens, hidden]
    gate_up: Array  # [tokens, 2 intermediate]
    gated: Array  # [tokens, intermediate]


@attrs.frozen(eq=False)
class HeadNorms:
    """RMSNorm weights `[head_dim]` for each head's queries and keys, before they are rotated."""

    queries: torch.Tensor
    keys: torch.Tensor


class Backend(Protocol[Array, Matrix]):
    """The operations of a decoder on one device. Called from the executor's thread alone.

    Results go into `out`, an array of the workspace. All arithmetic is float32, or better.
    """

    def matrix(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Matrix:
        """`weight` `[out, in]` and `bias` `[out]` in the backend's layout; both may be freed."""
        ...

    def set_embedding(self, weight: torch.Tensor) -> None:
        """The table that `embed` reads, `[vocabulary, hidden]`."""
        ...

    def reset(self) -> None:
        """Make the KV pool anew; what it held is gone."""
        ...

    def pools(self) -> tuple[Float32s, ...]:
        """The KV pool's arrays, each `[layers, blocks, …]`: views, for copies of whole blocks."""
        ...

    def begin(self, batch: Batch) -> Workspace[Array]:
        """Arrays for a step over `batch`, which the calls that follow are about."""
        ...

    def embed(self, tokens: Int32s, out: Array) -> None:
        """The tokens' rows of the embedding."""
        ...

    def product(self, matrix: Matrix, x: Array, out: Array) -> None:
        """Every row of `x` through the matrix, plus its bias."""
        ...

    def normalise(self, x: Array, out: Array) -> None:
        """Each row over its root mean square (RMSNorm, Zhang & Sennrich 2019), without weights."""
        ...

    def add_and_normalise(self, hidden: Array, change: Array, out: Array) -> None:
        """`hidden += change`, then `normalise` of it."""
        ...

    def attend(
        self, layer: int, qkv: Array, head_norms: HeadNorms | None, batch: Batch, out: Array
    ) -> None:
        """Causal attention of every row over its sequence, with rotary positions.

        `qkv` holds the heads' queries, then keys, then values, and may be overwritten. The new
        tokens' K and V are in the pool afterwards.
        """
        ...

    def gate(self, gate_up: Array, out: Array) -> None:
        """SiLU of the first half of each row times its second half (SwiGLU, Shazeer 2020)."""
        ...

    def logits(self, head: Matrix, normalised: Array, sampled: Int64s) -> Float32s:
        """The rows `sampled` of `normalised` through the head: `[sampled, usable vocabulary]`.

        Overwritten by the next call.
        """
        ...
