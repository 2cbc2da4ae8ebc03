"""The executor that runs real models: plans in, sampled tokens out."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numba
import torch

from plancha.calls.grammar_check import grammar_installed
from plancha.contracts import Geometry, LoadError, Progress, Site
from plancha.options import structure
from plancha.plans import Plan, StepDone
from plancha.startup import Stage
from plancha_engine.backend import Backend
from plancha_engine.checkpoint import Checkpoint, open_checkpoint
from plancha_engine.config import ModelConfig
from plancha_engine.dtype import resolve_dtype
from plancha_engine.kernels.compiling import compile_kernels
from plancha_engine.kv_pool import blocks_in
from plancha_engine.model import Decoder
from plancha_engine.numba_backend import NumbaBackend
from plancha_engine.options import TorchOptions as TorchOptions
from plancha_engine.runner import Runner
from plancha_engine.sampler import Grammars
from plancha_engine.torch_backend import TorchBackend
from plancha_engine.weights import prepare_weights


def torch_executor(options: Mapping[str, Any], site: Site) -> "TorchExecutor":
    """The entry point. Raises `OptionsError`; nothing is loaded yet."""
    return TorchExecutor(structure(options, TorchOptions, "executor"), site)


class TorchExecutor:
    """An `Executor` for one model on the CPU."""

    def __init__(self, options: TorchOptions, site: Site) -> None:
        self._options = options
        self._site = site
        self._runner: Runner | None = None

    def load(self, progress: Progress) -> Geometry:
        """See `Executor.load`."""
        checkpoint = open_checkpoint(Path(self._site.model))
        for note in checkpoint.notes:
            progress(note)
        kernels = "preparing kernels (compiled once, then cached)"
        progress(Stage("compiling kernels", text=kernels))
        compile_kernels()
        use_threads(self._options.threads)
        parameters = told_of(checkpoint, progress)
        self._runner = make_runner(checkpoint.config, parameters, self._options, self._site)
        return self._runner.geometry

    def step(self, plan: Plan) -> StepDone:
        """See `Executor.step`. The timings add up to `seconds`."""
        return self._loaded().step(plan)

    def reset(self) -> None:
        """See `Executor.reset`."""
        self._loaded().reset()

    def close(self) -> None:
        """Drop weights and pool."""
        self._runner = None

    def _loaded(self) -> Runner:
        if self._runner is None:
            raise RuntimeError("the executor has not loaded a model")
        return self._runner


def told_of(checkpoint: Checkpoint, progress: Progress) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters as `Checkpoint.tensors` gives them; `progress` hears of each percent."""
    weights = f"loading weights of {checkpoint.path.name}"
    progress(Stage("loading weights", 0, weights))
    total = sum(math.prod(tensor.shape) for tensor in checkpoint.stored.values())
    done, told = 0, 0
    for name, tensor in checkpoint.tensors(torch.float32):
        yield name, tensor
        done += tensor.numel()
        percent = 100 * done // total
        if percent > told:
            told = percent
            progress(Stage("loading weights", percent))


def make_runner(
    config: ModelConfig,
    parameters: Iterable[tuple[str, torch.Tensor]],
    options: TorchOptions,
    site: Site,
) -> Runner:
    """A runner of these parameters, given in the model's order. Raises `LoadError`."""
    if site.vocabulary > config.vocabulary:
        raise LoadError(
            f"the tokenizer has {site.vocabulary} ids, the model's embedding only "
            f"{config.vocabulary}: they do not belong together"
        )
    dtype = resolve_dtype(options.dtype, torch.device("cpu"))
    swap = options.swap_memory
    geometry = Geometry(
        blocks=blocks_in(options.kv_memory, config, site.block_size, dtype),
        context_length=min(config.context_length, options.context_length or config.context_length),
        vocabulary=site.vocabulary,
        stop_ids=tuple(token for token in config.stop_ids if token < site.vocabulary),
        host_blocks=blocks_in(swap, config, site.block_size, dtype) if swap else 0,
    )
    decoder = make_decoder(config, parameters, options.attention, site, geometry)
    return Runner(decoder, site, geometry, make_grammars(site, geometry))


def make_grammars(site: Site, geometry: Geometry) -> Grammars | None:
    """None where no output can be held to a schema.

    That is without the extra `grammar`, without the tokens' texts, and for a model without an
    end-of-sequence id, whose outputs could not end where their JSON does.
    """
    if site.plain_bytes is None or not geometry.stop_ids or not grammar_installed():
        return None
    from plancha_engine.grammar import JsonGrammars  # needs the extra

    tokens = [site.plain_bytes(token) for token in range(geometry.vocabulary)]
    return JsonGrammars(tokens, geometry.stop_ids, site.max_sequences)


def make_decoder(
    config: ModelConfig,
    parameters: Iterable[tuple[str, torch.Tensor]],
    backend_name: str,
    site: Site,
    geometry: Geometry,
) -> Decoder[Any, Any]:
    """The model on the backend `backend_name`: "numba" or "torch". Raises `LoadError`."""
    backend: Backend[Any, Any]
    if backend_name == "torch":
        backend = TorchBackend(config, site, geometry)
    else:
        backend = NumbaBackend(config, site, geometry)
    return Decoder(prepare_weights(parameters, config, backend, geometry.vocabulary), backend)


def use_threads(threads: int) -> None:
    """Compute with so many threads from this thread on; 0: all cores this process may use.

    Raises `LoadError` for more than that.
    """
    settings: Any = numba.config
    cores: int = settings.NUMBA_NUM_THREADS  # heeds the process's affinity, where there is one
    if threads > cores:
        raise LoadError(f"threads is {threads}, but this process may use {cores} cores")
    torch.set_num_threads(threads or cores)
    numba.set_num_threads(threads or cores)
