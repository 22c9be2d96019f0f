"""A folder of image files: flat, one folder per class, or split folders around either."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from ssl_vit.configs import SourceConfig
from ssl_vit.core.bounded import within
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import regular
from ssl_vit.core.notices import say_once
from ssl_vit.data.decoding.formats import MOST, check_bytes
from ssl_vit.data.sources.part import SPLITS, Labels, Part, check_names, described

SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif"),
)
_MATCHING = 10.0
"""Seconds of the processor that ``--data.group`` may take, and a thousandth for each path."""
_VISITS = 1000
"""How often links may lead to one folder: some that all hold links to the next make ever more of few files."""
_JUNK = frozenset({"thumbs.db", "desktop.ini"})
_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF", b"\0\0\0\x0cjP")


class NoImages(UserError):
    """A folder in which no file is an image."""


class NoImageColumn(UserError):
    """A table in which no column has images or names files."""


class NoGroup(UserError):
    """A path in which ``--data.group`` finds nothing; a table beside the images may have columns to name instead."""


@dataclass(frozen=True)
class FileRows:
    """Image files below a folder."""

    root: Path
    paths: Sequence[str]
    most: int = MOST
    """``--data.max_pixels``, which bounds files, too."""

    def __len__(self) -> int:
        """Number of images."""
        return len(self.paths)

    def raw(self, row: int) -> bytes:
        """The file's bytes."""
        return image_bytes(self.root / self.paths[row], self.most)

    def where(self, row: int) -> str:
        """The file's path."""
        return str(self.root / self.paths[row])

    def file(self, row: int) -> str:
        """The file's path."""
        return self.where(row)


def image_bytes(path: Path, most: int) -> bytes:
    """What the file of an image holds.

    Args:
        path: Where it is.
        most: ``--data.max_pixels``.

    Raises:
        OSError: Where it cannot be read, or is no regular file.
        Unreadable: Where it is too large.
    """
    check_bytes(regular(path).stat().st_size, most)
    return path.read_bytes()


def bytes_of(path: Path) -> int:
    """A file's size; -1 for a link to nothing, which decoding will name."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def groups_in(splits: Mapping[str, Sequence[str]], pattern: str | None) -> dict[str, list[str]]:
    """What ``--data.group`` finds in every path: its first bracket, or the whole match.

    It is looked for in a pool too, so that a mistake does not wait for the evaluation.
    """
    if pattern is None:
        return {}
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UserError(f"--data.group {pattern} is not a regular expression: {error}") from error
    count = sum(map(len, splits.values()))
    endless = f"--data.group {pattern} takes too long on {count:,} paths: name what stands between, as [^/]+ for .+"
    with within(_MATCHING + count / 1000, endless):
        return _matched(expression, splits, pattern)


def _matched(expression: re.Pattern[str], splits: Mapping[str, Sequence[str]], pattern: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {split: [] for split in splits}
    for split, paths in splits.items():
        for path in paths:
            match = expression.search(path)
            if match is None:
                raise NoGroup(f"--data.group {pattern} finds no group in {path}; it must match every file's path")
            found[split].append(match[1] if expression.groups else match[0])
    return found


def _looks_like_an_image(path: Path) -> bool:
    """Whether a file without suffix begins as an image does."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(12).startswith(_BEGINNINGS)
    except OSError:
        return False


def _folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Every visible folder and the names of its files; what leads back to a folder that it lies in is not followed."""
    visits = Counter[tuple[int, int]]()
    ways: dict[Path, frozenset[tuple[int, int]]] = {root: frozenset()}
    for name, folders, files in os.walk(root, onerror=_told, followlinks=True):
        folder = Path(name)
        own = _identity(folder)
        visits[own] += 1
        if visits[own] > _VISITS:
            raise UserError(f"links in {root} lead to {folder} more than {_VISITS:,} times; remove the needless ones")
        way = ways.pop(folder) | {own}
        inside = sorted(f for f in folders if not f.startswith("."))
        folders[:] = [f for f in inside if _identity(folder / f) not in way]
        if back := [f for f in inside if f not in folders]:
            say_once(f"note: {folder / back[0]} leads back to a folder that it lies in, and is passed over")
        ways |= {folder / f: way for f in folders}
        yield folder, files


def _told(error: OSError) -> NoReturn:
    """What lies in a folder that cannot be listed would be missing without a word."""
    raise UserError(
        f"{error.filename} cannot be read ({error.strerror}), and images in it would be missing; mend that, or move "
        "the folder away"
    ) from error


def _identity(folder: Path) -> tuple[int, int]:
    try:
        about = folder.stat()
    except OSError as error:
        _told(error)
    return about.st_dev, about.st_ino


def _image_files(root: Path) -> tuple[list[str], list[str]]:
    """Relative paths of image files below a folder, sorted, and of other visible files."""
    found: list[str] = []
    other: list[str] = []
    for folder, files in _folders(root):
        for file in sorted(files):
            if file.startswith(".") or file.lower() in _JUNK:
                continue
            path = folder / file
            suffix = path.suffix.lower()
            image = suffix in SUFFIXES or (not suffix and _looks_like_an_image(path))
            (found if image else other).append(path.relative_to(root).as_posix())
    check_names(found, str(root))
    return sorted(found), other


def open_folder(root: Path, cfg: SourceConfig, *, labelled: bool, table: str | None = None) -> dict[str, Part]:
    """Every split of a folder, by name; ``all`` where it has none.

    Args:
        root: The folder.
        cfg: The options, of which ``group`` and ``max_pixels`` concern a folder.
        labelled: Whether folders inside are classes.
        table: A table of labels that is read, too, and may lie in it.

    Raises:
        UserError: For a folder without images, and for splits that are not whole.
    """
    found, other = _image_files(root)
    other = [file for file in other if table is None or (root / file).resolve() != Path(table).expanduser().resolve()]
    if not found:
        hint = f"; it has {len(other)} other files, e.g. {other[0]}" if other else ""
        raise NoImages(f"the folder {root} has no images ({' '.join(SUFFIXES)}){hint}")
    if other:
        some = ", ".join(other[:3]) + (", ..." if len(other) > 3 else "")
        beside = next((f for f in other if f.endswith((".csv", ".tsv", ".jsonl")) and "/" not in f), None)
        use = f"; --data.labels {root / beside} takes labels from it" if beside else ""
        say_once(f"note: no images by name, passed over: {some} ({len(other):,} file(s) in {root}){use}")
    splits: dict[str, list[str]] = {}
    for path in found:
        first, _, rest = path.partition("/")
        splits.setdefault(SPLITS.get(first.lower(), "all") if rest else "all", []).append(path)
    if set(splits) != {"all"} and "all" in splits:
        raise UserError(
            f"{root} mixes split folders ({', '.join(s for s in splits if s != 'all')}) with other images, "
            f"e.g. {splits['all'][0]}; move one or the other"
        )
    if "all" not in splits and "train" not in splits:
        raise UserError(f"{root} has a {' and a '.join(splits)} folder, but no train folder")
    parts = {}
    for split, paths in splits.items():
        digest = hashlib.sha256()
        for path in paths:
            digest.update(f"{path}\0{bytes_of(root / path)}\n".encode())
        parts[split] = Part(FileRows(root, paths, cfg.max_pixels or MOST), digest.hexdigest())
    return described(parts, _classes(splits) if labelled else None, groups_in(splits, cfg.group))


def _classes(splits: dict[str, list[str]]) -> Labels | None:
    """Classes by folder; None where files do not all lie in folders of two names or more."""
    depth = 0 if "all" in splits else 1
    found = {split: [path.split("/")[depth:-1] for path in paths] for split, paths in splits.items()}
    names = sorted({folders[0] for part in found.values() for folders in part if folders})
    if len(names) < 2 or any([] in part for part in found.values()):
        return None
    number = {name: i for i, name in enumerate(names)}
    values = {split: np.array([number[f[0]] for f in part], dtype=np.int64) for split, part in found.items()}
    return Labels(values, tuple(names), origin="names of folders")
