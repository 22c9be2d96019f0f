"""What becomes of odd and broken image files, through every kind of source.

    python benchmarks/odd_files.py --data FOLDER

FOLDER holds image files, or a folder ``files`` of them and parquet files beside it. The same files are written as a
csv and a jsonl of names, as parquet, arrow and tar, and as a ``datasets.Dataset``; every source must say the same.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
from datasets import config
from ssl_vit.configs import SourceConfig
from ssl_vit.data.decoding.decode import Format, Unreadable, decode, read_header
from ssl_vit.data.sources.locate import open_source

from reports import RESULTS, about, made_by

READERS = ("pillow", "tifffile", "simplejpeg", "datasets", "pyarrow", "numpy")
"""Packages that take part in reading."""


class Source(NamedTuple):
    """How to open the files once more."""

    path: str
    stream: bool = False
    dataset: Any = None


def paths_of(folder: Path) -> list[str]:
    """The files that the folder source takes for images, relative to it."""
    rows: Any = open_source(SourceConfig(path=str(folder)), labelled=False)["all"].rows
    return list(rows.paths)


def write_sources(folder: Path, names: list[str], out: Path) -> dict[str, Source]:
    """The same files in every kind of source."""
    files = [(folder / name).read_bytes() for name in names]
    places = [str((folder / name).resolve()) for name in names]
    out.mkdir(parents=True)
    quoted = ["".join(('"', place.replace('"', '""'), '"')) for place in places]
    (out / "names.csv").write_text("\n".join(["image", *quoted]), encoding="utf-8")
    lines = [json.dumps({"image": place}, ensure_ascii=False) for place in places]
    (out / "names.jsonl").write_text("\n".join(lines), encoding="utf-8")
    table = pyarrow.table({"image": pyarrow.array(files, pyarrow.binary())})
    pyarrow.parquet.write_table(table, out / "bytes.parquet", row_group_size=10)
    with pyarrow.OSFile(str(out / "bytes.arrow"), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with tarfile.open(out / "shard.tar", "w") as tar:
        for i, (name, data) in enumerate(zip(names, files, strict=True)):
            info = tarfile.TarInfo(f"{i:06}{Path(name).suffix or '.jpg'}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    cells = {"image": [{"bytes": data, "path": None} for data in files]}
    given = datasets.Dataset.from_dict(cells, features=datasets.Features({"image": datasets.Image(decode=False)}))
    return {
        "folder": Source(str(folder)),
        "csv": Source(str(out / "names.csv")),
        "jsonl": Source(str(out / "names.jsonl")),
        "parquet": Source(str(out / "bytes.parquet")),
        "parquet stream": Source(str(out / "bytes.parquet"), stream=True),
        "arrow": Source(str(out / "bytes.arrow")),
        "tar": Source(str(out / "shard.tar")),
        "tar stream": Source(str(out / "shard.tar"), stream=True),
        "Dataset": Source("given", dataset=given),
    }


def outcomes(source: Source, known: dict[str, str]) -> list[str]:
    """What becomes of every image of a source; ``known`` remembers what was decoded before."""
    cfg = SourceConfig(path=source.path, stream=source.stream)
    parts = open_source(cfg, labelled=False, dataset=source.dataset)
    rows = [(part.rows, row) for part in parts.values() for row in range(len(part.rows))]
    return [_outcome(where, row, known) for where, row in rows]


def _outcome(rows: Any, row: int, known: dict[str, str]) -> str:
    try:
        raw = rows.raw(row)
    except (Unreadable, OSError) as error:
        return f"named: {getattr(error, 'strerror', None) or error}"
    digest = hashlib.sha256(raw).hexdigest()
    if digest not in known:
        known[digest] = _decoded(raw)
    return known[digest]


def _decoded(raw: bytes) -> str:
    try:
        header = read_header(raw)
        pixels, _ = decode(raw, Format(header.channels, header.bits), None)
    except Unreadable as error:
        return f"named: {error}"
    channels, height, width = pixels.shape
    return f"ok: {width} x {height}, {channels} channel(s), {pixels.dtype.itemsize * 8} bits"


def report(data: Path) -> str:
    """The table as Markdown."""
    folder = data / "files" if (data / "files").is_dir() else data
    names = paths_of(folder)
    known: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        config.HF_DATASETS_CACHE = Path(scratch) / "cache"
        sources = write_sources(folder, names, Path(scratch) / "sources")
        found = {kind: outcomes(source, known) for kind, source in sources.items()}
        lines = ["| file | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
        for i, name in enumerate(names):
            cells = [column[i].replace("|", "/") for column in found.values()]
            same = ["same" if cell == cells[0] else cell for cell in cells[1:]]
            lines.append(f"| {name} | {' | '.join([cells[0], *same])} |")
        for file in sorted(data.glob("*.parquet")):
            plain, streamed = (outcomes(Source(str(file), stream=s), known) for s in (False, True))
            lines += ["", f"### {file.name}", "", "| row | parquet | parquet stream |", "|---|---|---|"]
            for row, (a, b) in enumerate(zip(plain, streamed, strict=True)):
                lines.append(f"| {row} | {a} | {'same' if a == b else b} |")
    everything = [p for p in folder.rglob("*") if p.is_file()]
    passed = sorted(p.relative_to(folder).as_posix() for p in everything)
    passed = [name for name in passed if name not in names]
    return "\n".join([*lines, "", f"Passed over in the folder: {', '.join(passed) or 'nothing'}."])


def main() -> None:
    """Writes results/odd_files.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of odd files")
    words = parser.parse_args()
    body = report(words.data)
    head = [
        "# Odd files through every source", "",
        "Each file in a format of its own (its channels and bits). `named`: the image counts as unreadable and is "
        "named with this reason; `same`: as in the folder.", "",
    ]  # fmt: skip
    made = made_by(about(f"python benchmarks/odd_files.py --data {words.data.name}"), READERS)
    (RESULTS / "odd_files.md").write_text("\n".join([*head, body, "", made, ""]), encoding="utf-8")
    sys.stdout.write(f"{RESULTS / 'odd_files.md'}\n")


if __name__ == "__main__":
    main()
