"""Vectors of images as a file: parquet, csv or npz, by the ending of its name."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet

from ssl_vit.core.files import write_bytes_atomically

if TYPE_CHECKING:
    from ssl_vit.evaluation.embedding import Embedded

ENDINGS = (".parquet", ".csv", ".npz")


def write_features(found: Embedded, path: Path, about: dict[str, str]) -> None:
    """Writes the file whole or not at all: one row per image, in the order of the source.

    Parquet has the columns path, label (where any image has one) and vector (a list of D numbers); csv has a column
    for every number of a vector, v0 to v(D-1); npz has the arrays path, label and vector [n, D].

    Args:
        found: The vectors.
        path: Ends in one of ``ENDINGS``.
        about: What made them, kept inside parquet files.
    """
    labels = {} if found.known is None else found.known.columns()
    columns: dict[str, list[Any]] = {"path": found.names(), **labels}
    write = {".parquet": _parquet, ".csv": _csv, ".npz": _npz}[path.suffix.lower()]
    write_bytes_atomically(path, write(columns, found.x.astype(np.float32), about))


def _parquet(columns: dict[str, list[Any]], x: np.ndarray, about: dict[str, str]) -> bytes:
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.ascontiguousarray(x).reshape(-1)), x.shape[1])
    table = pyarrow.table({**columns, "vector": vectors}).replace_schema_metadata(about)
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def _csv(columns: dict[str, list[Any]], x: np.ndarray, about: dict[str, str]) -> bytes:
    numbers = {f"v{i}": column for i, column in enumerate(np.ascontiguousarray(x.T))}
    sink = pyarrow.BufferOutputStream()
    pyarrow.csv.write_csv(pyarrow.table({**columns, **numbers}), sink)
    return sink.getvalue().to_pybytes()


def _npz(columns: dict[str, list[Any]], x: np.ndarray, about: dict[str, str]) -> bytes:
    arrays: dict[str, Any] = {name: np.array(_filled(values)) for name, values in columns.items()}
    file = io.BytesIO()
    np.savez_compressed(file, **arrays, vector=x)
    return file.getvalue()


def _filled(values: list[Any]) -> list[Any]:
    """Without None, which an array of numpy cannot hold: an empty text, or not a number."""
    number = any(isinstance(value, float) for value in values)
    return [(np.nan if number else "") if value is None else value for value in values]
