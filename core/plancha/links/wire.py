"""Messages as bytes: JSON for what has a shape of its own, raw little-endian columns behind it.

A message is two little-endian uint32, the bytes that follow in all and the JSON's part of them,
then the JSON, padded to 8 with spaces, then each array padded to 8 with zeros. The JSON is
`[message, [[dtype, shape], …]]`; an array in the message is the index of its place in that list.
Nothing is ever pickled, and nothing is taken that its type does not allow.
"""

import math
import struct
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, get_args, get_origin

import cattrs
import numpy as np
import numpy.typing as npt
import orjson
from cattrs.strategies import configure_tagged_union

from plancha.messages import Control, Frame, Submit

HEADER = struct.Struct("<II")
MAX_MESSAGE = 64 * 2**20
"""Bytes after the header, at most: four times the largest prompt that a door lets in."""

MAX_ARRAYS = 2**16
ALIGNMENT = 8
DTYPES = frozenset({"<i4", "<i8", "<f4", "|b1"})

Array = npt.NDArray[Any]


class WireError(Exception):
    """Bytes that are no message of this protocol, or a message that cannot be sent."""


class Wire:
    """Encodes and decodes messages of the given attrs classes. For one thread."""

    def __init__(self, *kinds: type) -> None:
        self._arrays: list[Array] = []  # of the message at hand
        self._union: Any = reduce(or_, kinds)
        self._converter = _converter(self._place, self._placed)
        configure_tagged_union(self._union, self._converter, tag_name="kind")

    def encode(self, message: Any) -> bytes:
        """Header and payload. Raises `WireError` for what no peer would take."""
        arrays: list[Array] = []
        self._arrays = arrays
        try:
            body = self._converter.unstructure(message, unstructure_as=self._union)
            json = orjson.dumps([body, [[array.dtype.str, array.shape] for array in arrays]])
        except (orjson.JSONEncodeError, KeyError) as error:
            raise WireError(f"cannot be sent: {type(error).__name__}") from None
        json += b" " * (-len(json) % ALIGNMENT)
        parts = [json]
        for array in arrays:
            parts += [array.tobytes(), bytes(-array.nbytes % ALIGNMENT)]
        size = sum(map(len, parts))
        if size > MAX_MESSAGE or len(arrays) > MAX_ARRAYS:
            raise WireError(f"cannot be sent: {size} bytes are more than {MAX_MESSAGE}")
        return b"".join((HEADER.pack(size, len(json)), *parts))

    def decode(self, payload: bytes, json_size: int) -> Any:
        """The message behind a header. Its arrays are read-only views of `payload`.

        Raises `WireError` for anything that is not exactly one message.
        """
        try:
            body, manifest = orjson.loads(payload[:json_size])
            self._arrays = _arrays(payload, json_size, manifest)
            message = self._converter.structure(body, self._union)
            _check_columns(message)
        except WireError:
            raise
        except Exception as error:  # from None: what was sent is in its text
            raise WireError(f"not a message of this protocol: {type(error).__name__}") from None
        return message

    def _place(self, array: Array) -> int:
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        self._arrays.append(little.reshape(array.shape))
        return len(self._arrays) - 1

    def _placed(self, index: Any, kind: Any) -> Array:
        (dtype,) = get_args(get_args(kind)[1])
        if type(index) is not int or index < 0:
            raise WireError("not a message of this protocol: no array")
        array = self._arrays[index]
        if array.dtype != dtype:
            raise WireError(f"not a message of this protocol: {array.dtype} in place of {dtype}")
        return array


def sizes(header: bytes, most: int = MAX_MESSAGE) -> tuple[int, int]:
    """Bytes that follow a header, and the JSON's part of them. Raises `WireError` over `most`."""
    size, json_size = HEADER.unpack(header)
    if size > most or json_size > size:
        raise WireError(f"not a message of this protocol: {size} bytes, {json_size} of them JSON")
    return size, json_size


def _arrays(payload: bytes, offset: int, manifest: Any) -> list[Array]:
    arrays: list[Array] = []
    if len(manifest) > MAX_ARRAYS:
        raise WireError(f"not a message of this protocol: {len(manifest)} arrays")
    for dtype, shape in manifest:
        if dtype not in DTYPES or any(type(side) is not int or side < 0 for side in shape):
            raise WireError("not a message of this protocol: an array of unknown kind")
        count = math.prod(shape)
        array = np.frombuffer(payload, dtype, count, offset) if count else np.empty(0, dtype)
        arrays.append(array.reshape(shape))
        offset += array.nbytes + -array.nbytes % ALIGNMENT
    if offset != len(payload):
        raise WireError(f"not a message of this protocol: {len(payload) - offset} bytes too many")
    return arrays


def _check_columns(message: Any) -> None:
    """What the types cannot say, and whoever takes the message relies on."""
    match message:
        case Frame(streams, tokens):
            right = streams.ndim == 1 and streams.shape == tokens.shape
        case Submit(request, streams):
            right = request.n >= 1 and len(streams) == request.n * len(request.prompts) > 0
            right = right and all(prompt.ndim == 1 and prompt.size for prompt in request.prompts)
        case _:
            right = True
    if not right:
        raise WireError("not a message of this protocol: columns that do not match")


def _converter(place: Any, placed: Any) -> cattrs.Converter:
    converter = cattrs.Converter(
        forbid_extra_keys=True, detailed_validation=False, omit_if_default=True
    )
    converter.register_unstructure_hook_func(_is_array, place)
    converter.register_structure_hook_func(_is_array, placed)
    converter.register_unstructure_hook(bytes, bytes.hex)
    converter.register_structure_hook(bytes, lambda text, _: bytes.fromhex(text))
    for kind in (bool, int, str):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _number)
    converter.register_unstructure_hook_func(_is_by_number, _by_text)
    converter.register_structure_hook_func(_is_by_number, _by_number)
    configure_tagged_union(Control, converter, tag_name="kind")
    return converter


def _is_array(kind: Any) -> bool:
    return get_origin(kind) is np.ndarray


def _exactly(kind: type) -> Any:
    def check(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise WireError(f"not a message of this protocol: no {kind.__name__}")
        return value

    return check


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise WireError("not a message of this protocol: no number")
    return float(value)


def _is_by_number(kind: Any) -> bool:
    """JSON's keys are text."""
    return get_origin(kind) is Mapping and get_args(kind) == (int, float)


def _by_text(table: Mapping[int, float]) -> dict[str, float]:
    return {str(key): value for key, value in table.items()}


def _by_number(table: Mapping[str, float], _: Any) -> dict[int, float]:
    return {int(key): _number(value, float) for key, value in table.items()}
