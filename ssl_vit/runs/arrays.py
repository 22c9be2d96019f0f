"""Arrays that lie beside a result: read only where a file is what it says, so that a damaged one costs no memory."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ssl_vit.core.errors import UserError

_ERRORS = (OSError, ValueError, KeyError, EOFError, IndexError, RuntimeError, MemoryError)
_READ = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_arrays(path: Path, remedy: str) -> dict[str, np.ndarray]:
    """The arrays of an npz file, by name; what holds Python objects is not read.

    Args:
        path: Where it is.
        remedy: What to do where it is damaged, as the end of a sentence.

    Raises:
        UserError: Where it is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_end(path, archive)
            return {info.filename.removesuffix(".npy"): _array(archive, info) for info in archive.infolist()}
    except (*_ERRORS, struct.error, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} is damaged; {remedy}") from error


def _check_end(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuses a list of contents that is shorter than what was written: zipfile would leave the rest out."""
    with path.open("rb") as file:
        file.seek(-22, 2)
        end = file.read()
    mark, *_, count, size, start, comment = struct.unpack("<4s4H2LH", end)
    whole = mark == b"PK\5\6" and not comment and start + size + len(end) == path.stat().st_size
    if not whole or count != len(archive.infolist()):
        raise ValueError("a list of contents that does not fit the file")


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as file:
        any_file: Any = file
        shape, by_columns, dtype = _READ[np.lib.format.read_magic(any_file)](any_file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or size != info.file_size - file.tell():
            raise ValueError("a header that does not fit what follows it")
        content = file.read()  # all of it, so that its checksum is compared
        if len(content) != size:
            raise ValueError("a file that ends too early")
    return np.frombuffer(bytearray(content), dtype).reshape(shape, order="F" if by_columns else "C")
