"""Damaged GGUF files: always one clear refusal, in bounded time and memory."""

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plancha.contracts import LoadError
from plancha_engine.checkpoint import open_checkpoint
from plancha_engine.gguf_file import ArrayValue, read_gguf

STRING, ARRAY, UINT8, UINT32 = 8, 9, 0, 4
F32 = 0


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str, dimensions: tuple[int, ...], kind: int = F32, offset: int = 0) -> bytes:
    sizes = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


def header(
    pairs: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
    *,
    version: int = 3,
    pair_count: int | None = None,
    tensor_count: int | None = None,
) -> bytes:
    """A whole file by the format's specification, with counts that may lie."""
    counts = (
        len(tensors) if tensor_count is None else tensor_count,
        len(pairs) if pair_count is None else pair_count,
    )
    return b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join((*pairs, *tensors))


def refusal(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(LoadError) as error:
        read_gguf(path)
    assert str(error.value).startswith(f"{path}: ")
    return str(error.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def test_a_file_by_the_specification_is_read(path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    nested = struct.pack("<IQ", ARRAY, 1) + struct.pack("<IQ2B", UINT8, 2, 5, 6)
    content = header(
        (
            pair("name", STRING, text("Ä")),
            pair("count", UINT32, struct.pack("<I", 3)),
            pair("words", ARRAY, struct.pack("<IQ", STRING, 2) + text("a") + text("bc")),
            pair("nested", ARRAY, nested),
        ),
        (tensor("w", (3, 2), offset=32),),
    )
    data_at = -(-len(content) // 32) * 32
    path.write_bytes(content.ljust(data_at + 32, b"\0") + values.tobytes())

    file = read_gguf(path)

    assert (file.metadata["name"], file.metadata["count"]) == ("Ä", 3)
    assert file.metadata["words"] == ArrayValue(2)
    assert file.metadata["nested"] == ArrayValue(1)
    assert file.tensors["w"].shape == (2, 3)
    np.testing.assert_array_equal(file.tensors["w"].data.view(np.float32), values.reshape(2, 3))


@pytest.mark.parametrize("content", [b"", b"GG", b"GGML\0\0\0\0", b"PK\3\4" + bytes(99)], ids=len)
def test_a_file_of_another_format_is_not_a_gguf_file(path: Path, content: bytes) -> None:
    assert "not a GGUF file" in refusal(path, content)


def test_other_versions_and_byte_orders_are_named(path: Path) -> None:
    assert "version is 1, must be" in refusal(path, header(version=1))
    assert "version is big-endian, must be" in refusal(path, header(version=3 << 24))


DAMAGED = [
    (b"GGUF", "ends at byte 4, inside its header"),
    (header(tensor_count=2**60), f"{2**60} tensors do not fit"),
    (header(pair_count=2**63), f"{2**63} metadata pairs do not fit"),
    (header((struct.pack("<Q", 2**40) + bytes(9),)), f"{2**40} bytes of a metadata key do not"),
    (header((pair("k", STRING, struct.pack("<Q", 2**62)),)), f"{2**62} bytes of k do not fit"),
    (header((pair("k", 13, b"\0"),)), "k has the unknown value type 13"),
    (header((pair("k", UINT32, b"\0"),)), "ends at byte"),
    (header((pair("k", STRING, text("x")),) * 2), "metadata key 'k' appears twice"),
    (header((pair("k", ARRAY, struct.pack("<IQ", STRING, 2**50)),)), "strings of k do not fit"),
    (header((pair("k", ARRAY, struct.pack("<IQ", UINT32, 2**61)),)), "values of k do not fit"),
    (header((pair("k", ARRAY, struct.pack("<IQQ", STRING, 1, 2**63) + b"x"),)), "inside k"),
    (header((pair("k", ARRAY, struct.pack("<IQ", ARRAY, 1) * 9),)), "k nests arrays too deeply"),
    (header((struct.pack("<Q", 4) + b"\xff\xfe\xfd\xfc" + bytes(16),)), "is not UTF-8"),
    (header((), (tensor("w", ()),)), "w has 0 dimensions"),
    (header((), (tensor("w", (1,) * 5),)), "w has 5 dimensions, must be 1 to 4"),
    (header((), (tensor("w", (32,), kind=99),)), "w has the unknown type 99"),
    (header((), (tensor("w", (0,)),)), r"w has the shape [0]"),
    (header((), (tensor("w", (40,), kind=2),)), "rows of 40 values, must be a multiple of 32"),
    (header((), (tensor("w", (32,), offset=2**63),)), "tensor w would need"),
    (header((), (tensor("w", (2**62, 2**62)),)), "tensor w would need"),
    (header((), (tensor("w", (1,)),) * 2) + bytes(99), "two tensors have the same name"),
    (header((pair("general.alignment", UINT32, struct.pack("<I", 48)),)), "is 48, must be a power"),
    (header((pair("general.alignment", UINT32, bytes(4)),)), "general.alignment is 0"),
    (header((pair("general.alignment", STRING, text("x")),)), "general.alignment is 'x'"),
]


@pytest.mark.parametrize(("content", "message"), DAMAGED, ids=range(len(DAMAGED)))
def test_a_count_or_size_that_cannot_be_is_refused_with_its_number(
    path: Path, content: bytes, message: str
) -> None:
    tracemalloc.start()
    try:
        assert message in refusal(path, content)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A valid tiny file: 8 values hidden, one layer."""
    keys = {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": 8,
        "feed_forward_length": 8,
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
    }
    epsilon = pair("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5))
    pairs = [
        pair("general.architecture", STRING, text("llama")),
        *(pair(f"llama.{key}", UINT32, struct.pack("<I", value)) for key, value in keys.items()),
        epsilon,
        pair("tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, 4) + text("ab") * 4),
        pair("tokenizer.ggml.eos_token_id", UINT32, struct.pack("<I", 3)),
    ]
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (8, 4),
        "output_norm": (8,),
        "blk.0.attn_norm": (8,),
        "blk.0.attn_q": (8, 8),
        "blk.0.attn_k": (8, 4),
        "blk.0.attn_v": (8, 4),
        "blk.0.attn_output": (8, 8),
        "blk.0.ffn_norm": (8,),
        "blk.0.ffn_gate": (8, 8),
        "blk.0.ffn_up": (8, 8),
        "blk.0.ffn_down": (8, 8),
    }
    tensors, data = [], b""
    for name, shape in shapes.items():
        tensors.append(tensor(f"{name}.weight", shape, offset=len(data)))
        data += bytes(4 * int(np.prod(shape)))
        data += bytes(-len(data) % 32)
    head = header(tuple(pairs), tuple(tensors))
    content = head + bytes(-len(head) % 32) + data
    file = tmp_path_factory.mktemp("whole") / "model.gguf"
    file.write_bytes(content)
    assert len(open_checkpoint(file).load()) == len(shapes)
    return content


def test_a_file_cut_anywhere_is_refused(path: Path, whole: bytes) -> None:
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(LoadError):
            open_checkpoint(path)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_file_changed_anywhere_loads_or_is_refused(
    path: Path, whole: bytes, data: st.DataObject
) -> None:
    content = bytearray(whole)
    places = st.integers(0, 1400)  # the header, where every byte means something
    for place in data.draw(st.lists(places, min_size=1, max_size=4)):
        match data.draw(st.sampled_from(["byte", "number", "insert", "delete"])):
            case "byte":
                content[place] = data.draw(st.integers(0, 255))
            case "number":
                number = data.draw(st.sampled_from([0, 1, 2**31 - 1, 2**32, 2**63, 2**64 - 1]))
                content[place : place + 8] = struct.pack("<Q", number)
            case "insert":
                content[place:place] = data.draw(st.binary(min_size=1, max_size=16))
            case "delete":
                del content[place : place + data.draw(st.integers(1, 16))]
    path.write_bytes(content)

    tracemalloc.start()
    try:
        open_checkpoint(path).load()
    except LoadError as error:
        assert str(path) in str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 8_000_000
