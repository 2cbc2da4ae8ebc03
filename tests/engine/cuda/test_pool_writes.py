"""Writing K and V into blocks, and copying blocks, under emulation against torch's indexing."""

import pytest
import torch

from cuda_emulation.program import ORDERS, Compiler
from plancha_engine.cuda.attention_shape import AttentionShape
from plancha_engine.cuda.launch import Kernel, Parameter, launch
from plancha_engine.cuda.pool_writes import copy_blocks, copy_kernel, write_kernel, write_kv
from plancha_engine.cuda.sources import source

SHAPES = [
    AttentionShape(torch.bfloat16, 3, 1, 64, 16),
    AttentionShape(torch.float16, 2, 1, 96, 32),
    AttentionShape(torch.bfloat16, 1, 1, 128, 32),
]


def int32(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int16)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_new_tokens_go_where_their_tables_say_and_nowhere_else(
    compiler: Compiler, shape: AttentionShape
) -> None:
    program = compiler.build([copy_kernel(), *(write_kernel(shape) for shape in SHAPES)])
    blocks, offsets = int32(4, 0, -1, 4, 2), int32(3, 15, 0, 0, 7)
    columns = shape.kv_heads * shape.head_dim
    qkv = torch.randn(5, 3 * columns).to(shape.dtype)
    new_keys, new_values = qkv[:, columns : 2 * columns], qkv[:, 2 * columns :]
    pool = (5, shape.kv_heads, shape.block_size, shape.head_dim)
    for order in ORDERS:
        keys, values = (torch.full(pool, torch.nan, dtype=shape.dtype) for _ in range(2))
        expected = (keys.clone(), values.clone())
        program.run([write_kv(shape, keys, values, new_keys, new_values, blocks, offsets)], order)
        for token in (0, 1, 3, 4):  # 2 is padding
            for whole, new in zip(expected, (new_keys, new_values), strict=True):
                row = new[token].view(shape.kv_heads, shape.head_dim)
                whole[blocks[token], :, offsets[token]] = row
        assert torch.equal(bits(keys), bits(expected[0]))
        assert torch.equal(bits(values), bits(expected[1]))


def test_blocks_are_copied_within_a_pool_out_of_it_and_back(compiler: Compiler) -> None:
    program = compiler.build([copy_kernel(), *(write_kernel(shape) for shape in SHAPES)])
    pool = torch.randn(3, 6, 2, 16, 64).to(torch.bfloat16)
    host = torch.zeros(3, 4, 2, 16, 64, dtype=torch.bfloat16)
    expected, expected_host = pool.clone(), host.clone()
    program.run(
        [
            copy_blocks(host, pool, int32(3, 0), int32(5, 2)),
            copy_blocks(pool, pool, int32(5, 1), int32(0, 4)),
            copy_blocks(pool, host, int32(2, 3), int32(0, 3)),
        ],
        "random",
    )
    expected_host[:, [3, 0]] = expected[:, [5, 2]]
    expected[:, [5, 1]] = expected[:, [0, 4]]
    expected[:, [2, 3]] = expected_host[:, [0, 3]]
    assert torch.equal(pool, expected)
    assert torch.equal(host, expected_host)


def test_a_place_in_the_pool_is_counted_in_64_bits(compiler: Compiler) -> None:
    text = (
        'extern "C" __global__ void place(long long* out, const int* blocks) {\n'
        "  out[threadIdx.x] = pool_offset<128, 16>(blocks, 16 + threadIdx.x, 5, 8);\n}\n"
    )
    kernel = Kernel(
        "place",
        source() + text,
        (Parameter("out", "long long*"), Parameter("blocks", "const int*")),
    )
    out, blocks = torch.zeros(16, dtype=torch.int64), int32(-1, 2_000_000)
    one = launch(kernel, (1, 1, 1), (16, 1, 1), 0, {"out": out, "blocks": blocks})
    compiler.build([kernel]).run([one])
    head = 2_000_000 * 8 + 5
    assert out.tolist() == [(head * 16 + slot) * 128 for slot in range(16)]
    assert out[0] > 2**34


def test_blocks_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"blocks of torch.Size\(\[1, 2, 8\]\)"):
        copy_blocks(torch.zeros(1, 2, 4), torch.zeros(1, 2, 8), int32(0), int32(0))


def test_rows_that_vectors_cannot_be_loaded_from_are_refused() -> None:
    shape = SHAPES[0]
    pool, new = torch.zeros(1, 3, 16, 64, dtype=torch.bfloat16), torch.zeros(1, 196)
    with pytest.raises(ValueError, match="196 elements apart"):
        write_kv(shape, pool, pool, new, new, int32(0), int32(0))
