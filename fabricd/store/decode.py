"""Frames into arrays: one ``numpy.frombuffer`` a frame, no copy. The layout is in model/frame.py."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricd.model.frame import Header, read_header

Values = NDArray[np.uint64]
Flags = NDArray[np.uint8]


class Frame(NamedTuple):
    """``values`` is (rows, columns) of u64 in the units of the schema, ``flags`` (rows, columns) of model.sample.Flag bits.

    Both point into the bytes they were decoded from.
    """

    header: Header
    values: Values
    flags: Flags


def decode_frame(data: bytes | bytearray | memoryview) -> Frame:
    """Check and decode. Raises model.frame.FrameError for anything that is not a whole, undamaged frame."""
    return view_frame(data, read_header(data))


def view_frame(data: bytes | bytearray | memoryview, header: Header) -> Frame:
    """The arrays of a frame whose header was already checked by ``read_header``."""
    words = np.frombuffer(data, "<u8")
    shape = (header.rows, header.columns)
    cells = header.rows * header.columns
    first = header.values_at >> 3
    values = words[first : first + cells].reshape(shape)
    flags = words[first + cells :].view(np.uint8)[:cells].reshape(shape)
    return Frame(header, values, flags)
