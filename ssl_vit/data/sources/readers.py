"""Table files by their suffix: parquet, arrow, csv, tsv, jsonl, json."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from pathlib import Path

import datasets
import pyarrow
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from datasets.exceptions import DatasetGenerationError
from datasets.table import InMemoryTable

from ssl_vit.core.errors import UserError


def read_table(file: Path) -> datasets.Dataset:
    """One file.

    Raises:
        UserError: For a file that is broken, empty, no UTF-8 text, or has two columns of one name.
    """
    try:
        data = READERS[file.suffix.lower()](file)
    except UserError:
        raise
    except (pyarrow.ArrowInvalid, OSError, ValueError, TypeError, DatasetGenerationError) as error:
        raise UserError(f"{file} cannot be read as {file.suffix.lower().lstrip('.')}: {first_line(error)}") from error
    if not len(data):
        raise UserError(f"{file} has no rows")
    return data


def first_line(error: Exception) -> str:
    """The first line of what an error says, or of what caused it."""
    return str(error.__cause__ or error).partition("\n")[0]


def _text(file: Path) -> bytes:
    """A text file without byte order mark; pyarrow would take what is no UTF-8 for pictures."""
    data = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text (byte {error.start:,}); save it as UTF-8") from error
    if b"\0" in data:
        raise UserError(f"{file} is not plain text: it has zero bytes; save it as UTF-8")
    return data


def _csv(file: Path) -> datasets.Dataset:
    data = _text(file)
    form = pyarrow.csv.ParseOptions(delimiter="\t" if file.suffix.lower() == ".tsv" else ",")
    # One block, because types are guessed from the first: labels may begin after a million rows without.
    whole = pyarrow.csv.ReadOptions(block_size=_block(data))
    return _in_memory(pyarrow.csv.read_csv(pyarrow.BufferReader(data), whole, form), file)


def _json_lines(file: Path) -> datasets.Dataset:
    data = _text(file)
    if file.suffix.lower() != ".json":
        whole = pyarrow.json.ReadOptions(block_size=_block(data))
        return _in_memory(pyarrow.json.read_json(pyarrow.BufferReader(data), whole), file)
    rows = json.loads(data)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("a .json file must hold a list of objects; one object per line is .jsonl")
    names = dict.fromkeys(name for row in rows for name in row)
    return _in_memory(pyarrow.table({name: [row.get(name) for row in rows] for name in names}), file)


def _block(data: bytes) -> int:
    return min(max(len(data), 1), 2**31 - 1)


def _in_memory(table: pyarrow.Table, file: Path) -> datasets.Dataset:
    _no_column_twice(table.column_names, file)
    return datasets.Dataset(InMemoryTable(table))


def _no_column_twice(names: list[str], file: Path) -> None:
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise UserError(f"{file} has two columns called {twice[0]}; rename one")


def open_parquet(file: Path) -> pyarrow.parquet.ParquetFile:
    """A parquet file whose end is whole.

    Raises:
        UserError: For a broken file, one without rows, and two columns of one name.
    """
    try:
        found = pyarrow.parquet.ParquetFile(file)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise UserError(f"{file} cannot be read as parquet: {first_line(error)}") from error
    _no_column_twice(found.schema_arrow.names, file)
    if not found.metadata.num_rows:
        raise UserError(f"{file} has no rows")
    return found


def _parquet(file: Path) -> datasets.Dataset:
    open_parquet(file)
    data = datasets.Dataset.from_parquet(str(file))
    assert isinstance(data, datasets.Dataset)
    return data


def _arrow(file: Path) -> datasets.Dataset:
    try:
        return datasets.Dataset.from_file(str(file))
    except pyarrow.ArrowInvalid:  # the file format, not the stream that datasets writes
        with pyarrow.memory_map(str(file)) as source:
            return _in_memory(pyarrow.ipc.open_file(source).read_all(), file)


READERS: dict[str, Callable[[Path], datasets.Dataset]] = {
    ".parquet": _parquet, ".arrow": _arrow, ".csv": _csv, ".tsv": _csv, ".jsonl": _json_lines, ".json": _json_lines,
}  # fmt: skip
"""How a file is read, by its suffix."""
