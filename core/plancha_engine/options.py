"""What an operator can set of the executor `torch`."""

from typing import Literal

import attrs

from plancha.options import Size, at_least

DEFAULT_KV_MEMORY = Size(2**30)
NO_MEMORY = Size(0)


@attrs.frozen(kw_only=True)
class TorchOptions:
    """Computes on the CPU."""

    device: Literal["auto", "cpu"] = "auto"
    """What computes; `auto` is the CPU."""

    dtype: Literal["auto", "float32"] = "auto"
    """Of weights and KV cache, whatever the checkpoint holds; `auto` is `float32`."""

    attention: Literal["numba", "torch"] = "numba"
    """Kernels of attention; `torch` is slow and for comparison."""

    threads: int = attrs.field(default=0, validator=at_least(0))
    """Cores to compute with. 0: all that this process may use."""

    kv_memory: Size = DEFAULT_KV_MEMORY
    """For the blocks of the KV cache."""

    swap_memory: Size = NO_MEMORY
    """For the blocks of preempted sequences, in host memory; `paged-swap` uses it."""

    context_length: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(at_least(1))
    )
    """Tokens of a sequence at most, prompt and output together. Left out: the model's own; a
    greater number than that changes nothing."""
