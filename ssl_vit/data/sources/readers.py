"""Table files by their suffix: parquet, arrow, csv, tsv, jsonl, json."""

from __future__ import annotations

import codecs
import glob
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import datasets
import pyarrow
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from datasets.exceptions import DatasetGenerationError
from datasets.table import InMemoryTable

from ssl_vit.core.errors import UserError
from ssl_vit.core.reading import loads
from ssl_vit.data.sources.folder import SUFFIXES
from ssl_vit.data.sources.remote import File, for_arrow


def read_table(file: Path) -> datasets.Dataset:
    """One file."""
    with not_read(file):
        data = READERS[file.suffix.lower()](file)
    if not len(data):
        raise UserError(f"{file} has no rows")
    return data


def first_line(error: Exception) -> str:
    """The first line of what an error says, or of what caused it."""
    return str(error.__cause__ or error).partition("\n")[0]


@contextmanager
def not_read(file: File) -> Iterator[None]:
    """Says of every error of a library which file it could not read."""
    try:
        yield
    except UserError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, ArithmeticError, DatasetGenerationError) as error:
        raise UserError(f"{file} cannot be read as {file.suffix.lower().lstrip('.')}: {first_line(error)}") from error


def _text(file: Path) -> tuple[pyarrow.BufferReader, int]:
    """A text file without byte order mark, and its length; pyarrow would take what is no UTF-8 for pictures."""
    data = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text (byte {error.start:,}); save it as UTF-8") from error
    if b"\0" in data:
        raise UserError(f"{file} is not plain text: it has zero bytes; save it as UTF-8")
    # Read as one block, because types are guessed from the first: labels may begin after a million rows without.
    return pyarrow.BufferReader(data), min(max(len(data), 1), 2**31 - 1)


def _csv(file: Path) -> datasets.Dataset:
    text, whole = _text(file)
    first = text.read(4096).partition(b"\n")[0]
    text.seek(0)
    between = "\t" if file.suffix.lower() == ".tsv" else ";" if b";" in first and b"," not in first else ","
    names = [name.strip().strip('"') for name in first.decode(errors="replace").split(between)]
    if wrong := next((name for name in names if Path(name).suffix.lower() in SUFFIXES), None):
        raise UserError(f"{file} begins with {wrong}, not with names of columns; put a line such as file,label first")
    form, read = pyarrow.csv.ParseOptions(delimiter=between), pyarrow.csv.ReadOptions(block_size=whole)
    table = pyarrow.csv.read_csv(text, read, form)
    if between == ";" and any(map(_has_commas, table.columns)):
        text.seek(0)
        table = pyarrow.csv.read_csv(text, read, form, pyarrow.csv.ConvertOptions(decimal_point=","))
    return _in_memory(table.rename_columns([name.strip() for name in table.column_names]), file)


def _has_commas(column: pyarrow.ChunkedArray) -> bool:
    """Whether a column is numbers with decimal commas, as spreadsheets write them in many languages."""
    if not pyarrow.types.is_string(column.type):
        return False
    cells = [v.strip() for v in column.drop_null().to_pylist() if v.strip()]
    return any("," in v for v in cells) and all(re.fullmatch(r"[-+]?\d+(,\d+)?", v) for v in cells)


def _json_lines(file: Path) -> datasets.Dataset:
    text, whole = _text(file)
    return _in_memory(pyarrow.json.read_json(text, pyarrow.json.ReadOptions(block_size=whole)), file)


def _json(file: Path) -> datasets.Dataset:
    rows = loads(_text(file)[0].read())
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("a .json file must hold a list of objects; one object per line is .jsonl")
    names = dict.fromkeys(name for row in rows for name in row)
    return _in_memory(pyarrow.table({name: [row.get(name) for row in rows] for name in names}), file)


def _in_memory(table: pyarrow.Table, file: Path) -> datasets.Dataset:
    _no_column_twice(table.column_names, file)
    return datasets.Dataset(InMemoryTable(table))


def _no_column_twice(names: list[str], file: File) -> None:
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise UserError(f"{file} has two columns called {twice[0]}; rename one")


def open_parquet(file: File) -> pyarrow.parquet.ParquetFile:
    """A parquet file whose end is whole."""
    with not_read(file):
        found = pyarrow.parquet.ParquetFile(for_arrow(file))
    _no_column_twice(found.schema_arrow.names, file)
    if not found.metadata.num_rows:
        raise UserError(f"{file} has no rows")
    return found


def _parquet(file: Path) -> datasets.Dataset:
    open_parquet(file)
    data = datasets.Dataset.from_parquet(glob.escape(str(file)))  # a path with brackets is no pattern
    assert isinstance(data, datasets.Dataset)
    return data


def _arrow(file: Path) -> datasets.Dataset:
    try:
        data = datasets.Dataset.from_file(str(file))
    except pyarrow.ArrowInvalid:  # the file format, not the stream that datasets writes
        with pyarrow.memory_map(str(file)) as source:
            table = pyarrow.ipc.open_file(source).read_all()
        check_places(table)
        return _in_memory(table, file)
    check_places(data.data.table)
    return data


def check_places(table: pyarrow.Table) -> None:
    """Sees that all cells of a table from an arrow file lie inside of it.

    pyarrow takes their places as the file has them, and reads beyond the file's memory where one is wrong.

    Args:
        table: As it was read.

    Raises:
        pyarrow.ArrowInvalid: With the place.
    """
    table.validate(full=True)


READERS: dict[str, Callable[[Path], datasets.Dataset]] = {
    ".parquet": _parquet, ".arrow": _arrow, ".csv": _csv, ".tsv": _csv, ".jsonl": _json_lines, ".json": _json,
}  # fmt: skip
"""How a file is read, by its suffix."""
