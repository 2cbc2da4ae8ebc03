"""The metadata of GGUF files, held against the `gguf` package's own writer and reader."""

import struct
from pathlib import Path
from typing import Any

import gguf
import pytest

from plancha.contracts import LoadError
from plancha_text.gguf_metadata import read_metadata

VALUES: dict[str, tuple[str, Any]] = {
    "a.uint8": ("add_uint8", 255),
    "a.int8": ("add_int8", -128),
    "a.uint16": ("add_uint16", 65_535),
    "a.int16": ("add_int16", -1),
    "a.uint32": ("add_uint32", 4_294_967_295),
    "a.int32": ("add_int32", -7),
    "a.float32": ("add_float32", 0.5),
    "a.uint64": ("add_uint64", 2**63),
    "a.int64": ("add_int64", -(2**62)),
    "a.float64": ("add_float64", 1e300),
    "a.bool": ("add_bool", True),
    "a.string": ("add_string", "naïve ▁ 🙂"),
    "a.strings": ("add_array", ["", "▁the", "Ġa", "🙂"]),
    "a.integers": ("add_array", [1, -2, 3]),
    "a.floats": ("add_array", [0.0, -1.5]),
    "a.bools": ("add_array", [True, False]),
    "b.other": ("add_string", "not asked for"),
}


ONE_KEY = struct.pack("<QQ1s", 1, 1, b"k")
NESTED = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 5000


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, (method, value) in VALUES.items():
        getattr(writer, method)(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_every_type_of_value_is_read_as_it_was_written(written: Path) -> None:
    expected = {key: value for key, (_, value) in VALUES.items() if key.startswith("a.")}
    assert read_metadata(written, "a.") == expected


@pytest.mark.model
def test_the_default_model_reads_as_the_gguf_package_reads_it(model_file: Path) -> None:
    fields = gguf.GGUFReader(model_file).fields
    found = read_metadata(model_file)
    assert found.keys() == {key for key in fields if not key.startswith("GGUF.")}
    for key, value in found.items():
        assert value == fields[key].contents(), key


def test_a_file_cut_anywhere_in_its_metadata_is_named(written: Path, tmp_path: Path) -> None:
    whole = written.read_bytes()
    cut = tmp_path / "cut.gguf"
    end_of_metadata = whole.index(b"not asked for") + len(b"not asked for")
    for size in range(1, end_of_metadata):
        cut.write_bytes(whole[:size])
        with pytest.raises(LoadError, match=r"cut\.gguf"):
            read_metadata(cut)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"PK\x03\x04" + bytes(40), "not a GGUF file"),
        (b"GGUF\x01\x00\x00\x00" + bytes(40), "version 1 is not supported"),
        (b"", "empty"),
        (b"GGUF\x03\x00\x00\x00" + bytes(8) + ONE_KEY + NESTED, "damaged"),
    ],
)
def test_what_is_not_a_gguf_file_is_said(tmp_path: Path, data: bytes, complaint: str) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(data)
    with pytest.raises(LoadError, match=complaint):
        read_metadata(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"none\.gguf cannot be read: No such file"):
        read_metadata(tmp_path / "none.gguf")
