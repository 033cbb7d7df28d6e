"""TensorBoard's event files, read as they grow: scalars with tag and step."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_HEAD = struct.Struct("<QI")  # of a record: its length, and a checksum
_FOOT = 4  # the checksum of its data
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protobuf's wire types
_FLOAT, _DOUBLE = 1, 2  # TensorFlow's types of a tensor


class Scalar(NamedTuple):
    """A scalar of an event file."""

    step: int
    tag: str
    value: float


class EventFile:
    """An event file that another process writes.

    Its records are TFRecords of protobuf messages ``Event``; checksums are not looked at.

    Args:
        path: the file
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0  # bytes

    def scalars(self) -> Iterator[Scalar]:
        """Yield the scalars that have come since the last call."""
        with open(self._path, "rb") as file:
            file.seek(self._read)
            data = file.read()
        start = 0
        while start + _HEAD.size <= len(data):
            length, _ = _HEAD.unpack_from(data, start)
            end = start + _HEAD.size + length + _FOOT
            if end > len(data):
                break  # the rest is still to be written
            yield from _scalars(data[start + _HEAD.size : end - _FOOT])
            start = end
        self._read += start


def _scalars(event: bytes) -> Iterator[Scalar]:
    """Yield the scalars of an ``Event``: field 2 is its step, 5 its summary."""
    step, summaries = 0, []
    for number, value in _fields(event):
        if number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in _fields(summary):
            if number == 1 and isinstance(value, bytes):
                tag, scalar = _tag_and_value(value)
                if scalar is not None:
                    yield Scalar(step, tag, scalar)


def _tag_and_value(message: bytes) -> tuple[str, float | None]:
    """Return those of a ``Summary.Value``: 1 is the tag, 2 a float, 8 a tensor."""
    tag, found = "", None
    for number, value in _fields(message):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif number == 2 and isinstance(value, bytes):
            found = float(struct.unpack("<f", value)[0])
        elif number == 8 and isinstance(value, bytes):
            found = _of_tensor(value)
    return tag, found


def _of_tensor(message: bytes) -> float | None:
    """Return the number of a ``TensorProto``: 1 is its type, 4 its bytes, 5 and 6 its numbers."""
    fields = dict(_fields(message))
    kind = fields.get(1)
    form = {_FLOAT: "<f", _DOUBLE: "<d"}.get(kind) if isinstance(kind, int) else None
    for number in (4, 5, 6):
        value = fields.get(number)
        if form and isinstance(value, bytes) and len(value) == struct.calcsize(form):
            return float(struct.unpack(form, value)[0])
    return None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field; of what is no message, what could be read."""
    place = 0
    while place < len(message):
        try:
            key, place = _varint(message, place)
            value: int | bytes
            if key & 7 == _VARINT:
                value, place = _varint(message, place)
            else:
                size = {_FIXED64: 8, _FIXED32: 4}.get(key & 7)
                if size is None:
                    if key & 7 != _BYTES:
                        return
                    size, place = _varint(message, place)
                value, place = message[place : place + size], place + size
        except IndexError:
            return
        yield key >> 3, value


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Return a number of variable length, and the place behind it."""
    result = shift = 0
    while True:
        byte = message[place]
        result |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return result, place
