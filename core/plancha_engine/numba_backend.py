"""The decoder's operations on CPU cores, in kernels that numba compiles."""

import attrs
import numba
import numpy as np
import torch

from plancha.contracts import Geometry, LoadError, Site
from plancha.messages import Int32s, Int64s
from plancha_engine.arrays import Float32s
from plancha_engine.backend import HeadNorms, Workspace
from plancha_engine.batch_tables import Batch
from plancha_engine.config import ModelConfig
from plancha_engine.kernels.attention import attend, schedule
from plancha_engine.kernels.elementwise import add_and_normalise, embed, gate, normalise
from plancha_engine.kernels.product import PANEL, pack, product
from plancha_engine.kernels.rotary import rotate_and_store
from plancha_engine.kernels.vectors import LANES
from plancha_engine.rope import cos_sin, inverse_frequencies

NO_WEIGHT: Float32s = np.zeros(0, np.float32)


@attrs.frozen(eq=False)
class PackedMatrix:
    """See `pack`."""

    panels: Float32s  # [panels, in, 16]
    bias: Float32s  # [16 panels]


class NumbaBackend:
    """A `Backend` of NumPy arrays and `PackedMatrix`."""

    def __init__(self, config: ModelConfig, site: Site, geometry: Geometry) -> None:
        if config.head_dim % LANES:
            raise LoadError(
                f'attention = "numba" needs a head_dim that is a multiple of {LANES};'
                f' this model has {config.head_dim}: use attention = "torch"'
            )
        self.config = config
        self._pool_shape = (geometry.blocks, site.block_size)
        self._threads = numba.get_num_threads()
        cos, sin = cos_sin(inverse_frequencies(config), geometry.context_length)
        self._cos: Float32s = cos.numpy()
        self._sin: Float32s = sin.numpy()
        self._embedding: Float32s
        self._logits: Float32s = np.empty((0, 0), np.float32)
        self._workspace = _make_workspace(config, site.max_batched_tokens)
        self._items: Int32s
        self._bounds: Int64s
        self._keys: Float32s
        self._values: Float32s
        self.reset()

    def matrix(self, weight: torch.Tensor, bias: torch.Tensor | None) -> PackedMatrix:
        """Weights in panels; a bias of zeros for none."""
        panels = pack(weight)
        padded = np.zeros(panels.shape[0] * PANEL, np.float32)
        if bias is not None:
            padded[: bias.numel()] = bias.numpy()
        return PackedMatrix(panels, padded)

    def set_embedding(self, weight: torch.Tensor) -> None:
        """Kept as it is."""
        self._embedding = weight.numpy()

    def reset(self) -> None:
        """A new pool. The keys of a block lie turned, see `attention_item`."""
        config, (blocks, block_size) = self.config, self._pool_shape
        shape = (config.layers, blocks, config.kv_heads)
        self._keys = np.empty((*shape, config.head_dim, block_size), np.float32)
        self._values = np.empty((*shape, block_size, config.head_dim), np.float32)

    def pools(self) -> tuple[Float32s, ...]:
        """Keys and values."""
        return self._keys, self._values

    def begin(self, batch: Batch) -> Workspace[Float32s]:
        """Views of the same arrays every time; attention's work is shared out among the threads."""
        config, most = self.config, self._workspace.hidden.shape[0]
        if batch.tokens.size > most:  # a kernel would write past the end
            raise ValueError(f"a step of {batch.tokens.size} tokens; there is room for {most}")
        self._items, self._bounds = schedule(
            batch.first,
            batch.positions,
            config.kv_heads,
            config.heads // config.kv_heads,
            self._threads,
        )
        tokens, whole = batch.tokens.size, self._workspace
        return Workspace(
            hidden=whole.hidden[:tokens],
            normalised=whole.normalised[:tokens],
            qkv=whole.qkv[:tokens],
            attended=whole.attended[:tokens],
            change=whole.change[:tokens],
            gate_up=whole.gate_up[:tokens],
            gated=whole.gated[:tokens],
        )

    def embed(self, tokens: Int32s, out: Float32s) -> None:
        """See `Backend.embed`."""
        embed(self._embedding, tokens, out)

    def product(self, matrix: PackedMatrix, x: Float32s, out: Float32s) -> None:
        """See `Backend.product`."""
        product(x, matrix.panels, matrix.bias, out, self._threads)

    def normalise(self, x: Float32s, out: Float32s) -> None:
        """See `Backend.normalise`."""
        normalise(x, self.config.norm_epsilon, out)

    def add_and_normalise(self, hidden: Float32s, change: Float32s, out: Float32s) -> None:
        """See `Backend.add_and_normalise`."""
        add_and_normalise(hidden, change, self.config.norm_epsilon, out)

    def attend(
        self,
        layer: int,
        qkv: Float32s,
        head_norms: HeadNorms | None,
        batch: Batch,
        out: Float32s,
    ) -> None:
        """See `Backend.attend`."""
        config, keys, values = self.config, self._keys[layer], self._values[layer]
        rotate_and_store(
            qkv,
            batch.positions,
            batch.blocks,
            batch.offsets,
            self._cos,
            self._sin,
            head_norms.queries.numpy() if head_norms else NO_WEIGHT,
            head_norms.keys.numpy() if head_norms else NO_WEIGHT,
            config.norm_epsilon,
            config.heads,
            keys,
            values,
        )
        attend(
            qkv,
            batch.positions,
            batch.first,
            batch.slots,
            batch.block_table,
            self._items,
            self._bounds,
            keys,
            values,
            config.heads // config.kv_heads,
            out,
        )

    def gate(self, gate_up: Float32s, out: Float32s) -> None:
        """See `Backend.gate`."""
        gate(gate_up, out)

    def logits(self, head: PackedMatrix, normalised: Float32s, sampled: Int64s) -> Float32s:
        """See `Backend.logits`; the rows are as wide as the panels."""
        if self._logits.shape[0] < sampled.size:
            self._logits = np.empty((sampled.size, head.bias.size), np.float32)
        out = self._logits[: sampled.size]
        product(normalised[sampled], head.panels, head.bias, out, self._threads)
        return out


def _make_workspace(config: ModelConfig, tokens: int) -> Workspace[Float32s]:
    """What a product writes is as wide as its panels; columns beyond the matrix's are zero."""

    def array(columns: int) -> Float32s:
        return np.zeros((tokens, columns), np.float32)

    def product_of(columns: int) -> Float32s:
        return array(-(-columns // PANEL) * PANEL)

    query_columns = config.heads * config.head_dim
    return Workspace(
        hidden=array(config.hidden),
        normalised=array(config.hidden),
        qkv=product_of(query_columns + 2 * config.kv_heads * config.head_dim),
        attended=array(query_columns),
        change=product_of(config.hidden),
        gate_up=product_of(2 * config.intermediate),
        gated=array(config.intermediate),
    )
