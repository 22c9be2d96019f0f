"""WebDataset tar shards, read in place: an index of where every sample's files lie makes them as good as a folder.

A sample is all files of one name (``000123.jpg``, ``000123.cls``, ``000123.json``); their endings are its columns.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow

from ssl_vit.configs import SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.data.decoding.formats import Unreadable
from ssl_vit.data.sources.folder import SUFFIXES, group_of
from ssl_vit.data.sources.labels import read_labels
from ssl_vit.data.sources.part import Groups, Part, judged_splits, numbered

_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)")
_BLOCK = 512


@dataclass
class _Sample:
    """Where the files of one sample lie: (offset, size) by ending."""

    shard: int
    key: str
    files: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class TarRows:
    """Images inside tar files."""

    shards: tuple[Path, ...]
    endings: tuple[str, ...]
    """Which of a sample's files are its channels, for messages."""
    place: np.ndarray
    """Int[n]: the shard of every sample."""
    offset: np.ndarray
    """Int[n, endings]: where each file starts in its shard; -1 where the sample lacks it."""
    size: np.ndarray
    """Int[n, endings]: bytes."""
    keys: tuple[str, ...]

    def __len__(self) -> int:
        """Number of images."""
        return len(self.keys)

    def raw(self, row: int) -> bytes | tuple[bytes, ...]:
        """The files' bytes."""
        found: list[bytes] = []
        with self.shards[self.place[row]].open("rb") as file:
            for ending, offset, size in zip(self.endings, self.offset[row], self.size[row], strict=True):
                if offset < 0:
                    raise Unreadable(f"the sample has no {ending} file")
                file.seek(int(offset))
                found.append(file.read(int(size)))
        return found[0] if len(found) == 1 else tuple(found)

    def where(self, row: int) -> str:
        """Shard and name."""
        return f"{self.shards[self.place[row]]} {self.keys[row]}"


def open_shards(files: dict[str, list[Path]], cfg: SourceConfig, *, labelled: bool) -> dict[str, Part]:
    """Tar shards of every split.

    Args:
        files: Tar files by split name.
        cfg: Options of the source.
        labelled: Whether labels and groups are wanted.

    Raises:
        UserError: For files that are no tar, hold no images, or several kinds of images of which none is named.
    """
    samples = {split: _index(part) for split, part in files.items()}
    folder = str(next(iter(files.values()))[0].parent)
    endings = _image_endings(samples, cfg.image_column, folder)
    samples = {split: _with_image(part, endings, folder) for split, part in samples.items()}
    labels, groups = None, Groups({}, ())
    if labelled:
        tables = {split: _table(samples[split], files[split], endings) for split in judged_splits(files, cfg)}
        labels = read_labels(tables, cfg, folder, endings)
    if cfg.group is not None:
        groups = numbered({split: group_of(cfg.group, [s.key for s in part]) for split, part in samples.items()})
    parts = {}
    for split, found in samples.items():
        where = np.array([_where(s, endings) for s in found], dtype=np.int64)
        place = np.array([s.shard for s in found], dtype=np.int64)
        keys = tuple(s.key for s in found)
        rows = TarRows(tuple(files[split]), endings or ("image",), place, where[:, :, 0], where[:, :, 1], keys)
        digest = hashlib.sha256("\n".join(keys).encode() + where.tobytes()).hexdigest()
        part = Part(rows, digest, **groups.of(split), blocks=place if cfg.stream else None)
        if labels is not None and split in labels.values:
            part = replace(part, labels=labels.values[split], classes=labels.names, kind=labels.kind)
        parts[split] = part
    return parts


def _index(shards: list[Path]) -> list[_Sample]:
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


def _members(shard: Path, number: int) -> tuple[list[_Sample], bool]:
    """The samples of one shard, the last one perhaps not whole, and whether the shard's end is missing."""
    samples: list[_Sample] = []
    length = shard.stat().st_size
    end = 0
    try:
        with tarfile.open(shard, "r:") as tar:
            for member in _readable(tar):
                end = member.offset_data + -(-member.size // _BLOCK) * _BLOCK
                if member.offset_data + member.size > length:
                    break
                name = _NAME.fullmatch(member.name)
                if not member.isfile() or name is None:
                    continue
                ending = name[2].lower()
                if not samples or samples[-1].key != name[1] or ending in samples[-1].files:
                    samples.append(_Sample(number, name[1]))
                samples[-1].files[ending] = (member.offset_data, member.size)
    except tarfile.ReadError as error:
        packed = tarfile.is_tarfile(shard)
        hint = "compressed tar files cannot be read at a position; unpack them to .tar" if packed else str(error)
        raise UserError(f"{shard} cannot be read as a tar file: {hint}") from error
    with shard.open("rb") as file:  # a whole tar file ends with blocks of zeros
        file.seek(min(end, length))
        cut = file.read(_BLOCK) != bytes(_BLOCK)
    return samples, cut


def _readable(tar: tarfile.TarFile) -> Any:
    """Members up to the first header that cannot be read."""
    while True:
        try:
            member = tar.next()
        except tarfile.ReadError:
            if tar.offset == 0:
                raise
            return
        if member is None:
            return
        yield member


def _is_image(ending: str) -> bool:
    return f".{ending.rpartition('.')[2]}" in SUFFIXES


def _image_endings(samples: dict[str, list[_Sample]], wanted: str | None, folder: str) -> tuple[str, ...]:
    """The endings that were named; none where every sample has one image, whatever its ending.

    Raises:
        UserError: Without images, or where a sample has several and none is named.
    """
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
    found = [s for s in samples if any(e in endings if endings else _is_image(e) for e in s.files)]
    if len(found) < len(samples):
        kept = {id(s) for s in found}
        first = next(s for s in samples if id(s) not in kept)
        say_once(
            f"note: {len(samples) - len(found):,} samples in {folder} have no image and are passed over, e.g. "
            f"{first.key} ({', '.join(first.files)})"
        )
    if not found:
        raise UserError(f"a split of the tar files in {folder} has no images")
    return found


def _table(samples: list[_Sample], shards: list[Path], images: tuple[str, ...]) -> datasets.Dataset:
    """What is written beside the images: small text files and the fields of .json files, as a table."""
    names = sorted({e for s in samples for e in s.files if e not in images and not _is_image(e)})
    columns: dict[str, list[Any]] = {name: [] for name in names if name != "json"}
    fields: list[dict[str, Any]] = []
    handles = [shard.open("rb") for shard in shards]
    try:
        for sample in samples:
            for name in names:
                text = _text(handles[sample.shard], sample.files.get(name))
                if name == "json":
                    fields.append(_object(text, sample.key))
                else:
                    columns[name].append(text)
    finally:
        for handle in handles:
            handle.close()
    for name in sorted({k for f in fields for k in f}):
        columns.setdefault(name, [f.get(name) for f in fields])
    columns = {name: _plain(_numbers(values)) for name, values in columns.items()}
    return datasets.Dataset.from_dict(columns or {"key": [s.key for s in samples]})


def _text(handle: Any, where: tuple[int, int] | None) -> str | None:
    if where is None:
        return None
    handle.seek(where[0])
    return handle.read(min(where[1], 1_000_000)).decode("utf-8", errors="replace").strip()


def _object(text: str | None, key: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise UserError(f"the .json file of sample {key} is not valid JSON: {error}") from error
    return found if isinstance(found, dict) else {}


def _numbers(values: list[Any]) -> list[Any]:
    """Text such as "7" or "0.37" as numbers, where every value is one."""
    for kind, form in ((int, r"-?\d+"), (float, r"-?\d+(\.\d+)?([eE][-+]?\d+)?|-?(nan|inf)")):
        if all(isinstance(v, str) and re.fullmatch(form, v) for v in values if v is not None):
            return [None if v is None else kind(v) for v in values]
    return values


def _plain(values: list[Any]) -> list[Any]:
    """Values that a column can hold; others, such as numbers and text in turn, as text."""
    try:
        pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError):
        return [None if v is None else str(v) for v in values]
    return values
