"""WebDataset tar shards, read in place: an index of where every sample's files lie makes them as good as a folder.

A sample is all files of one name (``000123.jpg``, ``000123.cls``, ``000123.json``); their endings are its columns.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from posixpath import normpath
from typing import Any

import datasets
import numpy as np
import pyarrow

from ssl_vit.configs import SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.core.reading import loads
from ssl_vit.data.decoding.formats import MOST, Unreadable, check_bytes
from ssl_vit.data.sources.folder import SUFFIXES, groups_in
from ssl_vit.data.sources.labels import read_labels
from ssl_vit.data.sources.part import Part, check_names, described, judged_splits
from ssl_vit.data.sources.remote import File

_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)")
_BLOCK = 512


@dataclass(slots=True)
class _Sample:
    """Where the files of one sample lie: (offset, size) by ending."""

    shard: int
    key: str
    files: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _TarRows:
    shards: tuple[File, ...]
    endings: tuple[str, ...]
    """Which of a sample's files are its channels, for messages."""
    place: np.ndarray
    """Int[n]: the shard of every sample."""
    files: np.ndarray
    """Int[n, endings, 2]: where each file starts in its shard, -1 where the sample lacks it, and its bytes."""
    keys: pyarrow.LargeStringArray
    """Their names: one array, because a million objects of Python would be counted, and so copied, in every process."""
    most: int
    """``--data.max_pixels``, which bounds files, too."""

    def __len__(self) -> int:
        return len(self.keys)

    def raw(self, row: int) -> bytes | tuple[bytes, ...]:
        found: list[bytes] = []
        with self.shards[self.place[row]].open("rb") as file:
            for ending, (offset, size) in zip(self.endings, self.files[row].tolist(), strict=True):
                if offset < 0:
                    raise Unreadable(f"the sample has no {ending} file")
                check_bytes(size, self.most)
                file.seek(offset)
                found.append(file.read(size))
        return found[0] if len(found) == 1 else tuple(found)

    def where(self, row: int) -> str:
        return f"{self.shards[self.place[row]]} {self.keys[row].as_py()}"


def open_shards(files: Mapping[str, Sequence[File]], cfg: SourceConfig, *, labelled: bool) -> dict[str, Part]:
    """Tar shards of every split."""
    samples = {split: _index(part) for split, part in files.items()}
    folder = str(next(iter(files.values()))[0].parent)
    endings = _image_endings(samples, cfg.image_column, folder)
    samples = {split: _with_image(part, endings, folder) for split, part in samples.items()}
    labels, parts = None, {}
    if labelled:
        tables = {split: _table(samples[split], files[split], endings) for split in judged_splits(files, cfg)}
        labels = read_labels(tables, cfg, folder, endings)
    for split, found in samples.items():
        where = np.array([_where(s, endings) for s in found], dtype=np.int64)
        place = np.array([s.shard for s in found], dtype=np.int64)
        keys = [s.key for s in found]
        check_names(keys, folder)
        names = pyarrow.array(keys, pyarrow.large_string())
        rows = _TarRows(tuple(files[split]), endings or ("image",), place, where, names, cfg.max_pixels or MOST)
        digest = hashlib.sha256("\n".join(keys).encode() + where.tobytes()).hexdigest()
        parts[split] = Part(rows, digest, blocks=place if cfg.stream else None)
    groups = groups_in({split: [s.key for s in part] for split, part in samples.items()}, cfg.group)
    return described(parts, labels, groups)


def _index(shards: Sequence[File]) -> list[_Sample]:
    """Every whole sample of some shards, in their order; what is cut off is said."""
    read = [_members(shard, number) for number, shard in enumerate(shards)]
    whole = [s for samples, cut in read for s in (samples[:-1] if cut else samples)]
    typical = max((len(s.files) for s in whole), default=0)
    for shard, (samples, cut) in zip(shards, read, strict=True):
        if cut and samples and (not whole or len(samples[-1].files) < typical):
            samples.pop()  # its other files are what is missing, or may be
        if cut:
            say_once(
                f"warning: {shard} is cut off; its {len(samples):,} whole samples are used, copy the file again for "
                "the rest"
            )
    found = [s for samples, _ in read for s in samples]
    if not found:
        raise UserError(f"the tar files in {shards[0].parent} hold no samples")
    return found


def _members(shard: File, number: int) -> tuple[list[_Sample], bool]:
    """The samples of one shard, the last one perhaps not whole, and whether the shard's end is missing."""
    samples: list[_Sample] = []
    places, links = dict[str, tuple[int, int]](), 0
    length, end = shard.stat().st_size, 0
    try:
        with shard.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                size = 0 if member.islnk() else member.size  # some programs write that of the file it stands for
                end = member.offset_data + -(-size // _BLOCK) * _BLOCK
                if member.offset_data + size > length:
                    break
                name = _NAME.fullmatch(member.name)
                own = (member.offset_data, size) if member.isfile() else None
                # A hard link is another name of a file before it; nothing outside of the archive is looked at.
                place = places.get(normpath(member.linkname)) if member.islnk() else own
                if place is not None:
                    places[normpath(member.name)] = place
                if name is None or place is None:
                    links += name is not None and (member.islnk() or member.issym())
                    continue
                ending = name[2].lower()
                if not samples or samples[-1].key != name[1] or ending in samples[-1].files:
                    samples.append(_Sample(number, name[1]))
                samples[-1].files[ending] = place
    except tarfile.ReadError as error:
        if not end:  # a later header that cannot be read is where the file breaks off
            with shard.open("rb") as file:
                packed = tarfile.is_tarfile(file)
            hint = "compressed tar files cannot be read at a position; unpack them to .tar" if packed else str(error)
            raise UserError(f"{shard} cannot be read as a tar file: {hint}") from error
    if links:
        say_once(f"note: {links:,} name(s) in {shard} are links and are passed over; tar -h packs what they name")
    with shard.open("rb") as file:  # a whole tar file ends with blocks of zeros
        file.seek(min(end, length))
        return samples, file.read(_BLOCK) != bytes(_BLOCK)


def _is_image(ending: str) -> bool:
    return f".{ending.rpartition('.')[2]}" in SUFFIXES


def _image_endings(samples: dict[str, list[_Sample]], wanted: str | None, folder: str) -> tuple[str, ...]:
    """The endings that were named; none where every sample has one image, whatever its ending."""
    present = sorted({e for part in samples.values() for s in part for e in s.files})
    if wanted is not None:
        endings = tuple(word.strip().lower().lstrip(".") for word in wanted.split(","))
        missing = [e for e in endings if e not in present]
        if missing:
            raise UserError(f"no sample in {folder} has a .{missing[0]} file; endings there: {', '.join(present)}")
        return endings
    images = [e for e in present if _is_image(e)]
    if not images:
        raise UserError(f"the tar files in {folder} hold no images; endings there: {', '.join(present)}")
    if any(sum(map(_is_image, s.files)) > 1 for part in samples.values() for s in part):
        raise UserError(
            f"samples in {folder} have several images ({', '.join(images)}); name one with --data.image_column, or "
            "several joined by commas that are channels of one image"
        )
    return ()


def _where(sample: _Sample, endings: tuple[str, ...]) -> list[tuple[int, int]]:
    """Offset and size of a sample's image files; (-1, 0) for one it lacks."""
    if endings:
        return [sample.files.get(e, (-1, 0)) for e in endings]
    return [next((place for e, place in sample.files.items() if _is_image(e)), (-1, 0))]


def _with_image(samples: list[_Sample], endings: tuple[str, ...], folder: str) -> list[_Sample]:
    """The samples that have an image at all; a README or a list of classes is none."""
    found, other = [], []
    for sample in samples:
        (found if max(_where(sample, endings)) > (-1, 0) else other).append(sample)
    if other:
        say_once(
            f"note: {len(other):,} samples in {folder} have no image and are passed over, e.g. {other[0].key} "
            f"({', '.join(other[0].files)})"
        )
    if not found:
        raise UserError(f"a split of the tar files in {folder} has no images")
    return found


def _table(samples: list[_Sample], shards: Sequence[File], images: tuple[str, ...]) -> datasets.Dataset:
    """What is written beside the images: small text files and the fields of .json files, as a table."""
    texts: list[dict[str, Any]] = []
    fields: list[dict[str, Any]] = []
    with ExitStack() as stack:
        handles = [stack.enter_context(shard.open("rb")) for shard in shards]
        for sample in samples:
            file, row = handles[sample.shard], dict[str, Any]()
            for ending, (offset, size) in sample.files.items():
                if ending not in images and not _is_image(ending):
                    file.seek(offset)
                    row[ending] = file.read(min(size, 1_000_000)).decode("utf-8", errors="replace").strip()
            try:
                found = loads(row.pop("json", "") or "{}")
            except ValueError as error:
                raise UserError(f"the .json file of sample {sample.key} is not valid JSON: {error}") from error
            texts.append(row)
            fields.append(found if isinstance(found, dict) else {})
    columns: dict[str, list[Any]] = {}
    for rows in (texts, fields):
        for name in sorted({name for row in rows for name in row}):
            columns.setdefault(name, _typed([row.get(name) for row in rows]))
    return datasets.Dataset.from_dict(columns or {"key": [s.key for s in samples]})


def _typed(values: list[Any]) -> list[Any]:
    """Text such as "7" or "0.37" as numbers, where every value is one; blanks as none; as text what fits nowhere."""
    values = [None if isinstance(v, str) and not v.strip() else v for v in values]
    for kind, form in ((int, r"-?\d+"), (float, r"-?\d+(\.\d+)?([eE][-+]?\d+)?|-?(nan|inf)")):
        if all(isinstance(v, str) and re.fullmatch(form, v) for v in values if v is not None):
            values = [None if v is None else kind(v) for v in values]
    try:
        pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError):
        return [None if v is None else str(v) for v in values]
    return values
