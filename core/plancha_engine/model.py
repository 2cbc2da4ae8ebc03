"""The decoder of Llama, Mistral, Qwen2 and Qwen3: one forward pass over a ragged batch."""

from typing import Generic

import attrs

from plancha.messages import Int64s
from plancha_engine.arrays import Float32s
from plancha_engine.backend import Array, Backend, Matrix
from plancha_engine.batch_tables import Batch
from plancha_engine.stopwatch import Stopwatch
from plancha_engine.weights import Weights


@attrs.frozen(eq=False)
class Decoder(Generic[Array, Matrix]):
    """Embedding, layers of attention and SwiGLU around a residual stream, norm, head."""

    weights: Weights[Matrix]
    backend: Backend[Array, Matrix]

    def forward(self, batch: Batch, watch: Stopwatch) -> Array:
        """The last hidden states, `[tokens, hidden]`, for `logits`; valid until the next call.

        The K and V of the batch's tokens are in the pool afterwards.
        """
        backend = self.backend
        work = backend.begin(batch)
        backend.embed(batch.tokens, work.hidden)
        backend.normalise(work.hidden, work.normalised)
        for index, layer in enumerate(self.weights.layers):
            watch.lap("other")
            backend.product(layer.qkv, work.normalised, work.qkv)
            watch.lap("products")
            backend.attend(index, work.qkv, layer.head_norms, batch, work.attended)
            watch.lap("attention")
            backend.product(layer.output, work.attended, work.change)
            watch.lap("products")
            backend.add_and_normalise(work.hidden, work.change, work.normalised)
            watch.lap("other")
            backend.product(layer.gate_up, work.normalised, work.gate_up)
            watch.lap("products")
            backend.gate(work.gate_up, work.gated)
            watch.lap("other")
            backend.product(layer.down, work.gated, work.change)
            watch.lap("products")
            backend.add_and_normalise(work.hidden, work.change, work.normalised)
        watch.lap("other")
        return work.normalised

    def logits(self, states: Array, rows: Int64s, watch: Stopwatch) -> Float32s:
        """Of those rows: `[rows, usable vocabulary]`, valid until the next call."""
        logits = self.backend.logits(self.weights.head, states, rows)
        watch.lap("products")
        return logits
