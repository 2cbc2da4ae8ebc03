"""GGUF's header and where its tensors lie, read in one pass over a memory map.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The `gguf` package's own reader
makes several arrays for every string of the vocabulary (3 s for 98,000 of them); here strings of
arrays are stepped over (0.03 s). Nothing in the file is trusted: every count is checked against
the bytes that are left before anything is made of it.
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from plancha.contracts import LoadError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMENSIONS = 4
MAX_ARRAY_DEPTH = 4
DEFAULT_ALIGNMENT = 32

Bytes = npt.NDArray[np.uint8]


@attrs.frozen
class ArrayValue:
    """A metadata array of which only the length was read."""

    length: int


Value = bool | int | float | str | ArrayValue


@attrs.frozen
class GgufTensor:
    """Where a tensor lies. `shape` is row-major, `[out, in]`: the file has it the other way."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    data: Bytes = attrs.field(repr=False, eq=False)  # [rows, bytes a row], a view of the file


@attrs.frozen
class GgufFile:
    """A file's metadata and tensors by name. Views keep the memory map alive."""

    metadata: Mapping[str, Value]
    tensors: Mapping[str, GgufTensor]


class _Malformed(Exception):
    """The bytes are not a GGUF file's; the message says where."""


def read_gguf(path: Path) -> GgufFile:
    """Read the header and map the tensors. Raises `LoadError` for anything malformed or cut short.

    Raises `OSError` when the file cannot be opened.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise LoadError(f"{path}: not a GGUF file (it does not begin with the bytes GGUF)")
    try:
        return _Header(np.memmap(path, dtype=np.uint8, mode="r")).read()
    except _Malformed as error:
        raise LoadError(f"{path}: {error}; is the download complete?") from error


_SCALARS: Mapping[GGUFValueType, struct.Struct] = {
    GGUFValueType.UINT8: struct.Struct("<B"),
    GGUFValueType.INT8: struct.Struct("<b"),
    GGUFValueType.UINT16: struct.Struct("<H"),
    GGUFValueType.INT16: struct.Struct("<h"),
    GGUFValueType.UINT32: struct.Struct("<I"),
    GGUFValueType.INT32: struct.Struct("<i"),
    GGUFValueType.FLOAT32: struct.Struct("<f"),
    GGUFValueType.BOOL: struct.Struct("<?"),
    GGUFValueType.UINT64: struct.Struct("<Q"),
    GGUFValueType.INT64: struct.Struct("<q"),
    GGUFValueType.FLOAT64: struct.Struct("<d"),
}
_U32 = _SCALARS[GGUFValueType.UINT32]
_U64 = _SCALARS[GGUFValueType.UINT64]
_LEAST_PAIR_BYTES = 8 + 4 + 1  # name length, type, smallest value
_LEAST_TENSOR_BYTES = 8 + 4 + 4 + 8  # name length, dimensions, type, offset


class _Header:
    """A cursor over the file's bytes; each method reads one thing and moves past it."""

    def __init__(self, data: Bytes) -> None:
        self._data = data
        self._view = data.data
        self._size = len(data)
        self._at = len(MAGIC)

    def read(self) -> GgufFile:
        version = self._scalar(_U32)
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            found = "big-endian" if swapped else str(version)
            raise _Malformed(f"GGUF version is {found}, must be little-endian 2 or 3")
        tensor_count = self._count("tensors", _LEAST_TENSOR_BYTES)
        pair_count = self._count("metadata pairs", _LEAST_PAIR_BYTES)
        metadata: dict[str, Value] = {}
        for _ in range(pair_count):
            key = self._string("a metadata key")
            if key in metadata:
                raise _Malformed(f"metadata key {key!r} appears twice")
            metadata[key] = self._value(key)
        infos = [self._tensor_info() for _ in range(tensor_count)]
        start = self._aligned(metadata)
        tensors = {info[0]: self._tensor(start, *info) for info in infos}
        if len(tensors) != tensor_count:
            raise _Malformed("two tensors have the same name")
        return GgufFile(metadata, tensors)

    def _scalar(self, layout: struct.Struct) -> Any:
        if self._at + layout.size > self._size:
            raise _Malformed(f"the file ends at byte {self._size}, inside its header")
        value = layout.unpack_from(self._view, self._at)[0]
        self._at += layout.size
        return value

    def _count(self, what: str, least_bytes: int) -> int:
        """A count of things, each at least so long: more cannot be than bytes are left."""
        count: int = self._scalar(_U64)
        if count * least_bytes > self._size - self._at:
            raise _Malformed(f"{count} {what} do not fit in a file of {self._size} bytes")
        return count

    def _string(self, what: str) -> str:
        length = self._count(f"bytes of {what}", 1)
        raw = bytes(self._view[self._at : self._at + length])
        self._at += length
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _Malformed(f"{what} at byte {self._at - length} is not UTF-8") from error

    def _kind(self, what: str) -> GGUFValueType:
        code = self._scalar(_U32)
        try:
            return GGUFValueType(code)
        except ValueError as error:
            raise _Malformed(f"{what} has the unknown value type {code}") from error

    def _value(self, key: str) -> Value:
        kind = self._kind(key)
        if kind is GGUFValueType.STRING:
            return self._string(key)
        if kind is GGUFValueType.ARRAY:
            return self._array(key, MAX_ARRAY_DEPTH)
        value: Value = self._scalar(_SCALARS[kind])
        return value

    def _array(self, key: str, depth: int) -> ArrayValue:
        kind = self._kind(key)
        if kind is GGUFValueType.STRING:
            return self._strings(key)
        if kind is GGUFValueType.ARRAY:
            if depth == 1:
                raise _Malformed(f"{key} nests arrays too deeply")
            length = self._count(f"arrays of {key}", 4 + 8)
            for _ in range(length):
                self._array(key, depth - 1)
            return ArrayValue(length)
        size = _SCALARS[kind].size
        length = self._count(f"values of {key}", size)
        self._at += length * size
        return ArrayValue(length)

    def _strings(self, key: str) -> ArrayValue:
        length = self._count(f"strings of {key}", 8)
        # Bare locals: this loop runs once for every token and merge of the vocabulary.
        view, at, last, unpack = self._view, self._at, self._size - 8, _U64.unpack_from
        for _ in range(length):
            if at > last:
                raise _Malformed(f"the file ends at byte {self._size}, inside {key}")
            at += 8 + unpack(view, at)[0]
        if at > self._size:
            raise _Malformed(f"the file ends at byte {self._size}, inside {key}")
        self._at = at
        return ArrayValue(length)

    def _tensor_info(self) -> tuple[str, tuple[int, ...], GGMLQuantizationType, int]:
        name = self._string("a tensor's name")
        dimensions = self._scalar(_U32)
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise _Malformed(f"tensor {name} has {dimensions} dimensions, must be 1 to 4")
        shape = tuple(self._scalar(_U64) for _ in range(dimensions))[::-1]
        code = self._scalar(_U32)
        try:
            kind = GGMLQuantizationType(code)
        except ValueError as error:
            raise _Malformed(f"tensor {name} has the unknown type {code}") from error
        return name, shape, kind, self._scalar(_U64)

    def _aligned(self, metadata: Mapping[str, Value]) -> int:
        """Where the tensors' data begins: the next multiple of the alignment."""
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise _Malformed(f"general.alignment is {alignment!r}, must be a power of two")
        return -(-self._at // alignment) * alignment

    def _tensor(
        self, start: int, name: str, shape: tuple[int, ...], kind: GGMLQuantizationType, offset: int
    ) -> GgufTensor:
        block_values, block_bytes = GGML_QUANT_SIZES[kind]
        if 0 in shape:
            raise _Malformed(f"tensor {name} has the shape {list(shape)}")
        if shape[-1] % block_values:
            raise _Malformed(
                f"tensor {name} has rows of {shape[-1]} values,"
                f" must be a multiple of {block_values} for {kind.name}"
            )
        row_bytes = shape[-1] // block_values * block_bytes
        rows = 1
        for dimension in shape[:-1]:
            rows *= dimension
        begin, end = start + offset, start + offset + rows * row_bytes
        if end > self._size:
            raise _Malformed(
                f"the file has {self._size} bytes, tensor {name} would need {end} of them"
            )
        return GgufTensor(name, shape, kind, self._data[begin:end].reshape(rows, row_bytes))
