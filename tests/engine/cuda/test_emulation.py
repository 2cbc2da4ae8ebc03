"""That the emulation finds what it is there for: each kind of mistake, planted."""

from collections.abc import Sequence

import attrs
import pytest
import torch

from cuda_emulation.program import ORDERS, Compiler, EmulationError, Order, Sanitizer
from decoding import Decoding, make_decoding
from paged_case import NO_BLOCK
from plancha_engine.cuda.attention_shape import AttentionShape, Cores
from plancha_engine.cuda.decode import decode_kernel, merge_kernel
from plancha_engine.cuda.launch import Kernel, Launch, Parameter, launch
from plancha_engine.cuda.sources import source

SHAPE = AttentionShape(torch.bfloat16, 1, 2, 64, 16)
PRELUDE = source()
BARRIER = "__syncthreads();  // the warps' sums are there"


def kernel(body: str, name: str = "mistaken") -> Kernel:
    text = f'extern "C" __global__ void {name}(float* x) {{\n{body}\n}}\n'
    whole = f'{PRELUDE}#line 1 "{name}.cu"\n{text}'
    return Kernel(name, whole, (Parameter("x", "float*", alignment=16),))


def run(
    compiler: Compiler,
    body: str,
    x: torch.Tensor,
    threads: int = 64,
    order: Order = "forward",
    sanitizer: Sanitizer = "none",
    shared_bytes: int = 0,
) -> None:
    mistaken = kernel(body)
    launches = [launch(mistaken, (1, 1, 1), (threads, 1, 1), shared_bytes, {"x": x})]
    compiler.build([mistaken], sanitizer).run(launches, order)


def decoding(cores: Cores = "cuda") -> Decoding:
    return make_decoding(SHAPE, cores, split_tokens=96, lengths=(100, 5))


def with_mistake(launches: Sequence[Launch], right: str, wrong: str) -> list[Launch]:
    (text,) = {one.kernel.source for one in launches}
    assert text.count(right) == 1
    changed = text.replace(right, wrong)
    return [attrs.evolve(one, kernel=attrs.evolve(one.kernel, source=changed)) for one in launches]


def run_launches(
    compiler: Compiler,
    launches: Sequence[Launch],
    sanitizer: Sanitizer = "none",
    *,
    copy_early: bool = False,
) -> None:
    program = compiler.build([one.kernel for one in launches], sanitizer)
    program.run(launches, copy_early=copy_early)


@pytest.mark.parametrize("cores", ["cuda", "tensor"])
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_sanitizers_have_nothing_to_say_about_decode(
    compiler: Compiler, cores: Cores, sanitizer: Sanitizer
) -> None:
    for copy_early in (False, True):
        right = decoding(cores)
        run_launches(compiler, right.launches, sanitizer, copy_early=copy_early)
        assert right.worst_error() <= 1


def test_a_missing_barrier_shows_in_the_numbers_and_to_the_thread_sanitizer(
    compiler: Compiler,
) -> None:
    wrong = decoding()
    launches = with_mistake(wrong.launches, BARRIER, BARRIER.replace("__syncthreads();", ""))
    run_launches(compiler, launches)
    assert wrong.worst_error() == torch.inf
    with pytest.raises(EmulationError, match=r"data race(?s:.)*decode\.cu:\d+"):
        run_launches(compiler, launches, "thread")


def test_a_missing_wait_for_asynchronous_copies_shows_in_the_numbers(compiler: Compiler) -> None:
    wrong = decoding("tensor")
    launches = with_mistake(wrong.launches, "wait_for_copies<STAGES - 1>();", "")
    run_launches(compiler, launches)
    assert wrong.worst_error() == torch.inf


@pytest.mark.parametrize(
    ("barrier", "copy_early"),
    [
        ("__syncwarp();  // every lane's copies are there for the others", False),
        ("__syncwarp();  // nobody reads the tile any more", True),
    ],
)
def test_the_thread_sanitizer_misses_no_barrier_around_asynchronous_copies(
    compiler: Compiler, barrier: str, copy_early: bool
) -> None:
    wrong = make_decoding(SHAPE, "tensor", split_tokens=256, lengths=(200,))
    launches = with_mistake(wrong.launches, barrier, "")
    with pytest.raises(EmulationError, match=r"data race(?s:.)*decode_tensor\.cu:\d+"):
        run_launches(compiler, launches, "thread", copy_early=copy_early)


def test_too_little_shared_memory_is_an_overrun(compiler: Compiler) -> None:
    wrong = decoding()
    first = attrs.evolve(wrong.launches[0], shared_bytes=wrong.launches[0].shared_bytes - 4)
    with pytest.raises(EmulationError, match=r"heap-buffer-overflow(?s:.)*decode\.cu:\d+"):
        run_launches(compiler, [first, wrong.launches[1]], "address")


def test_a_block_beyond_the_pool_is_an_overrun(compiler: Compiler) -> None:
    wrong = decoding()
    wrong.case.block_table[wrong.case.slots[0], 1] = len(wrong.case.keys)
    with pytest.raises(EmulationError, match=r"heap-buffer-overflow(?s:.)*decode\.cu:\d+"):
        run_launches(compiler, wrong.launches, "address")


def test_reading_a_slot_that_no_token_is_in_shows_in_the_numbers(compiler: Compiler) -> None:
    wrong = decoding()
    launches = with_mistake(
        wrong.launches, "end = min(length, begin + split_tokens);", "end = begin + split_tokens;"
    )
    wrong.case.block_table.masked_fill_(wrong.case.block_table == NO_BLOCK, 0)
    run_launches(compiler, launches)
    assert wrong.worst_error() == torch.inf


def test_threads_at_two_barriers_are_reported_with_block_and_lines(compiler: Compiler) -> None:
    body = "if (threadIdx.x < 40)\n__syncthreads();\nelse\n__syncthreads();\nx[0] = 1.f;"
    with pytest.raises(EmulationError) as reported:
        run(compiler, body, torch.zeros(64))
    assert (
        "block (0,0,0): divergent barrier: thread 0 is at mistaken.cu:3"
        " and thread 40 at mistaken.cu:5"
    ) in str(reported.value)


def test_a_barrier_that_some_never_reach_is_reported_with_block_and_lines(
    compiler: Compiler,
) -> None:
    body = "if (threadIdx.x < 40)\n__syncthreads();\nx[0] = __shfl_sync(0xffffffffu, x[0], 0);"
    with pytest.raises(EmulationError) as reported:
        run(compiler, body, torch.zeros(64))
    assert "block (0,0,0): divergent barrier: nobody can go on" in str(reported.value)
    assert "thread 0 waits at mistaken.cu:3 (__syncthreads)" in str(reported.value)
    assert "thread 40 waits at mistaken.cu:4 (its warp)" in str(reported.value)


def test_lanes_of_one_mask_at_two_shuffles_are_reported(compiler: Compiler) -> None:
    body = (
        "float y = x[0];\nif (threadIdx.x < 16)\ny = __shfl_sync(0xffffffffu, y, 0);\nelse\n"
        "y = __shfl_sync(0xffffffffu, y, 1);\nx[threadIdx.x] = y;"
    )
    with pytest.raises(EmulationError, match=r"divergent warp: .* mistaken.cu:4 and at mistaken"):
        run(compiler, body, torch.zeros(32), threads=32)


COPY_AND_READ = """
  DYNAMIC_SHARED(float, own);
  copy_async_16(own + 4 * threadIdx.x, x + 4 * threadIdx.x, true);
  commit_copies();
  copy_async_16(own + 4 * threadIdx.x + 256, x + 4 * threadIdx.x + 256, threadIdx.x < 32);
  commit_copies();
  {wait}
  __syncthreads();
  const float mine = own[threadIdx.x] + own[threadIdx.x + 256];
  __syncthreads();
  x[threadIdx.x] = mine;
"""


@pytest.mark.parametrize(
    ("wait", "right"),
    [("wait_for_copies<0>();", True), ("wait_for_copies<1>();", False), ("", False)],
)
def test_an_asynchronous_copy_is_there_after_its_wait_only(
    compiler: Compiler, wait: str, right: bool
) -> None:
    for order in ORDERS:
        x = torch.arange(512, dtype=torch.float32)
        body = COPY_AND_READ.replace("{wait}", wait)
        run(compiler, body, x, threads=64, order=order, shared_bytes=2048)
        expected = torch.arange(64) * 2 + 256.0
        assert torch.equal(x[:64], expected) is right
        assert bool(x[:64].isnan().all()) is not right


def test_a_copy_that_shall_not_read_gives_zeros(compiler: Compiler) -> None:
    x = torch.ones(512)
    body = COPY_AND_READ.replace("{wait}", "wait_for_copies<0>();").replace(
        "own[threadIdx.x + 256]", "own[threadIdx.x + 256 + 128]"
    )
    run(compiler, body, x, shared_bytes=2048)
    assert torch.equal(x[:64], torch.ones(64))  # what lanes from 32 on asked for without reading


def test_a_parameter_that_python_declares_wrongly_does_not_compile(compiler: Compiler) -> None:
    right = decode_kernel(SHAPE, "cuda")
    wrong = attrs.evolve(right, parameters=(*right.parameters[:-1], Parameter("scale", "double")))
    with pytest.raises(EmulationError, match="the parameters that Python declares for decode"):
        compiler.build([wrong, merge_kernel(SHAPE)])
