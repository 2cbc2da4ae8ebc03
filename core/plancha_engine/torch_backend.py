"""The decoder's operations in plain torch: slow, obviously right, the reference of the others."""

import attrs
import torch
import torch.nn.functional as F

from plancha.contracts import Geometry, Site
from plancha.messages import Int32s, Int64s
from plancha_engine.arrays import Float32s
from plancha_engine.backend import HeadNorms, Workspace
from plancha_engine.batch_tables import Batch
from plancha_engine.config import ModelConfig
from plancha_engine.kv_pool import KvPool, make_pool
from plancha_engine.rope import cos_sin, inverse_frequencies


@attrs.frozen(eq=False)
class PlainMatrix:
    """As the checkpoint has it: weight `[out, in]`, bias `[out]`."""

    weight: torch.Tensor
    bias: torch.Tensor | None


class TorchBackend:
    """A `Backend` of `torch.Tensor` and `PlainMatrix`."""

    def __init__(self, config: ModelConfig, site: Site, geometry: Geometry) -> None:
        self.config = config
        self.pool: KvPool
        self._pool_shape = (geometry.blocks, site.block_size)
        self._embedding: torch.Tensor
        self._cos, self._sin = cos_sin(inverse_frequencies(config), geometry.context_length)
        self.reset()

    def matrix(self, weight: torch.Tensor, bias: torch.Tensor | None) -> PlainMatrix:
        """Kept as it is."""
        return PlainMatrix(weight, bias)

    def set_embedding(self, weight: torch.Tensor) -> None:
        """Kept as it is."""
        self._embedding = weight

    def reset(self) -> None:
        """A new pool."""
        self.pool = make_pool(self.config, *self._pool_shape, torch.float32)

    def pools(self) -> tuple[Float32s, ...]:
        """Keys and values, in the tensors' memory."""
        return self.pool.keys.numpy(), self.pool.values.numpy()

    def begin(self, batch: Batch) -> Workspace[torch.Tensor]:
        """New arrays."""
        config, tokens = self.config, batch.tokens.size
        query_width = config.heads * config.head_dim
        qkv_width = query_width + 2 * config.kv_heads * config.head_dim
        return Workspace(
            hidden=torch.empty(tokens, config.hidden),
            normalised=torch.empty(tokens, config.hidden),
            qkv=torch.empty(tokens, qkv_width),
            attended=torch.empty(tokens, query_width),
            change=torch.empty(tokens, config.hidden),
            gate_up=torch.empty(tokens, 2 * config.intermediate),
            gated=torch.empty(tokens, config.intermediate),
        )

    def embed(self, tokens: Int32s, out: torch.Tensor) -> None:
        """Rows of the table."""
        out.copy_(self._embedding[torch.from_numpy(tokens)])

    def product(self, matrix: PlainMatrix, x: torch.Tensor, out: torch.Tensor) -> None:
        """`F.linear`."""
        out.copy_(F.linear(x, matrix.weight, matrix.bias))

    def normalise(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """`F.rms_norm` without weights."""
        out.copy_(F.rms_norm(x, (x.shape[-1],), eps=self.config.norm_epsilon))

    def add_and_normalise(
        self, hidden: torch.Tensor, change: torch.Tensor, out: torch.Tensor
    ) -> None:
        """One after the other."""
        hidden += change
        self.normalise(hidden, out)

    def attend(
        self,
        layer: int,
        qkv: torch.Tensor,
        head_norms: HeadNorms | None,
        batch: Batch,
        out: torch.Tensor,
    ) -> None:
        """Row by row: gather its K and V from the pool, then one masked softmax."""
        config = self.config
        heads = qkv.view(-1, config.heads + 2 * config.kv_heads, config.head_dim)
        queries, keys, values = torch.split(
            heads, [config.heads, config.kv_heads, config.kv_heads], 1
        )
        if head_norms is not None:
            shape = (config.head_dim,)
            queries = F.rms_norm(queries, shape, head_norms.queries, config.norm_epsilon)
            keys = F.rms_norm(keys, shape, head_norms.keys, config.norm_epsilon)
        positions = torch.from_numpy(batch.positions)
        queries, keys = self._rotate(queries, positions), self._rotate(keys, positions)
        blocks, offsets = torch.from_numpy(batch.blocks), torch.from_numpy(batch.offsets)
        self.pool.keys[layer][blocks, :, offsets] = keys
        self.pool.values[layer][blocks, :, offsets] = values
        for row in range(batch.slots.size):
            tokens = slice(int(batch.first[row]), int(batch.first[row + 1]))
            context, table = self._table(batch, row)
            attended = F.scaled_dot_product_attention(
                queries[tokens].transpose(0, 1),
                self._gather(self.pool.keys[layer], table, context),
                self._gather(self.pool.values[layer], table, context),
                attn_mask=positions[tokens, None] >= torch.arange(context),
                enable_gqa=True,
            )
            out[tokens] = attended.transpose(0, 1).flatten(1)

    def gate(self, gate_up: torch.Tensor, out: torch.Tensor) -> None:
        """`F.silu` of one half times the other."""
        gate, up = gate_up.chunk(2, dim=-1)
        out.copy_(F.silu(gate) * up)

    def logits(self, head: PlainMatrix, normalised: torch.Tensor, sampled: Int64s) -> Float32s:
        """`F.linear` of those rows."""
        rows: Float32s = F.linear(normalised[torch.from_numpy(sampled)], head.weight).numpy()
        return rows

    def _rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """`[tokens, heads, head_dim]`, the two halves of a head being the pairs' sides."""
        cos, sin = self._cos[positions, None], self._sin[positions, None]
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)

    def _table(self, batch: Batch, row: int) -> tuple[int, torch.Tensor]:
        """The row's tokens so far, its new ones included, and the blocks that hold them."""
        context = int(batch.positions[batch.first[row + 1] - 1]) + 1
        blocks = -(-context // self._pool_shape[1])
        return context, torch.from_numpy(batch.block_table[batch.slots[row], :blocks])

    def _gather(self, pool: torch.Tensor, table: torch.Tensor, context: int) -> torch.Tensor:
        """`[kv_heads, context, head_dim]` out of a layer's blocks."""
        return pool[table].transpose(0, 1).flatten(1, 2)[:, :context]
