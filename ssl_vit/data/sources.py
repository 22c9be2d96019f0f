"""Finds images: scikit-learn's digits, folders, parquet files; says what is wrong where it cannot."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.data.decode import Format
from ssl_vit.data.images import ImageSet, Rows, Sizes, measure
from ssl_vit.data.splits import TEST_SHARE, made_split
from ssl_vit.errors import UserError, did_you_mean

SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif"),
)
_SPLITS = {"train": "train", "training": "train", "test": "test", "val": "val", "valid": "val", "validation": "val"}
_JUNK = frozenset({"thumbs.db", "desktop.ini"})


@dataclass(frozen=True)
class ArrayRows:
    """Images that are already pixels."""

    pixels: np.ndarray
    name: str

    def __len__(self) -> int:
        """Number of images."""
        return len(self.pixels)

    def raw(self, row: int) -> np.ndarray:
        """Pixels [C, H, W]."""
        return self.pixels[row]

    def where(self, row: int) -> str:
        """Name and row."""
        return f"{self.name} row {row}"


@dataclass(frozen=True)
class FileRows:
    """Image files below a folder."""

    root: Path
    paths: Sequence[str]

    def __len__(self) -> int:
        """Number of images."""
        return len(self.paths)

    def raw(self, row: int) -> bytes:
        """The file's bytes."""
        return (self.root / self.paths[row]).read_bytes()

    def where(self, row: int) -> str:
        """The file's path."""
        return str(self.root / self.paths[row])


@dataclass(frozen=True)
class JoinedRows:
    """Several splits one after another."""

    parts: tuple[Rows, ...]

    def __len__(self) -> int:
        """Number of images."""
        return sum(len(part) for part in self.parts)

    def _find(self, row: int) -> tuple[Rows, int]:
        for part in self.parts[:-1]:
            if row < len(part):
                return part, row
            row -= len(part)
        return self.parts[-1], row

    def raw(self, row: int) -> bytes | np.ndarray:
        """What the split has there."""
        part, row = self._find(row)
        return part.raw(row)

    def where(self, row: int) -> str:
        """What the split calls it."""
        part, row = self._find(row)
        return part.where(row)


class Table(NamedTuple):
    """One split of a source."""

    rows: Rows
    labels: np.ndarray | None
    classes: tuple[str, ...]
    fingerprint: str


class Labelled(NamedTuple):
    """What evaluation and supervised training work on."""

    train: ImageSet
    test: ImageSet
    split: str
    """How the test images came about, in words."""


def open_pool(data: DataConfig, judged_on: LabelledDataConfig) -> tuple[ImageSet, str]:
    """The images to pre-train on; labels are never handed out.

    Where the same source is also judged on and has no test split of its own, the images of the split that evaluation
    will make are kept out of the pool.

    Args:
        data: Where they are.
        judged_on: The labelled images of the evaluation.

    Returns:
        The pool, and a sentence about what it is.
    """
    tables = _open(data.path, data.image_column, None, labelled=False)
    source = data.path if judged_on.path is None else judged_on.path
    if not {"test", "val"} & set(tables) and _same(source, data.path):
        own = judged_on.path is None
        column = judged_on.label_column or (data.label_column if own else None)
        table = _labelled_if_possible(data.path, data.image_column, column)
        if table is not None and table.labels is not None:
            train, test = made_split(table.labels)
            note = f"{len(test):,} images stay out as a test split" if len(test) else "every image"
            return _image_set(data.path, table, train), note
    if "train" in tables:
        others = ", ".join(f"{len(t.rows):,} {name}" for name, t in tables.items() if name != "train")
        note = f"train split{f' ({others} images stay out)' if others else ''}"
        return _image_set(data.path, tables["train"], None), note
    return _image_set(data.path, tables["all"], None), "every image"


def open_images(data: DataConfig) -> ImageSet:
    """Every image of a source, all splits one after another, without labels: what a classifier is applied to.

    Args:
        data: Where they are.
    """
    tables = _open(data.path, data.image_column, None, labelled=False)
    ordered = [tables[name] for name in ("train", "val", "test", "all") if name in tables]
    whole = hashlib.sha256("".join(table.fingerprint for table in ordered).encode()).hexdigest()
    return _image_set(data.path, Table(JoinedRows(tuple(t.rows for t in ordered)), None, (), whole), None)


def _labelled_if_possible(path: str, image_column: str | None, label_column: str | None) -> Table | None:
    """The only split with its labels; None where they are unusable and nobody named them, so nothing can be judged."""
    try:
        return next(iter(_open(path, image_column, label_column).values()))
    except UserError:
        if label_column is not None:
            raise
        return None


def _same(one: str, other: str) -> bool:
    if "digits" in (one, other):
        return one == other
    return Path(one).expanduser().resolve() == Path(other).expanduser().resolve()


def open_labelled(data: DataConfig, labelled: LabelledDataConfig) -> Labelled:
    """The labelled training and test images.

    Args:
        data: The pool, used where ``labelled`` names nothing else.
        labelled: Where the labelled images are.

    Raises:
        UserError: Where there are no labels or only one class.
    """
    own = labelled.path is None
    path = data.path if labelled.path is None else labelled.path
    tables = _open(
        path,
        labelled.image_column or (data.image_column if own else None),
        labelled.label_column or (data.label_column if own else None),
    )
    missing = [name for name, table in tables.items() if table.labels is None]
    if missing:
        raise UserError(
            f"labels are needed, but {path} has none: sort the images into one folder per class, "
            "or name labelled images with --eval.data.path"
        )
    if "train" in tables and ("test" in tables or "val" in tables):
        held = "test" if "test" in tables else "val"
        train, test = _image_set(path, tables["train"], None, True), _image_set(path, tables[held], None, True)
        split = f"its own {held} split"
    else:
        table = tables.get("all") or tables["train"]
        assert table.labels is not None
        chosen = made_split(table.labels)
        train, test = (_image_set(path, table, rows, True) for rows in chosen)
        split = f"{TEST_SHARE:.0%} of every class, chosen by a fixed hash"
    train, test = _one_format(train, test)
    if train.labels is None or len(np.unique(train.labels)) < 2:
        raise UserError(f"{path} has training labels of one class only ({', '.join(train.classes)}); two are needed")
    if not len(test):
        raise UserError(f"{path} has no test images: with one image per class nothing can be held out")
    return Labelled(train, test, split)


def _one_format(train: ImageSet, test: ImageSet) -> tuple[ImageSet, ImageSet]:
    """Both splits in the wider of their formats, their canvas decided by the training images."""
    form = Format(max(train.form.channels, test.form.channels), max(train.form.bits, test.form.bits))
    common = train.sizes.common if train.sizes.common == test.sizes.common else None
    sizes = Sizes(common, train.sizes.short_side)
    return replace(train, form=form, sizes=sizes), replace(test, form=form, sizes=sizes)


def _image_set(name: str, table: Table, chosen: np.ndarray | None, labelled: bool = False) -> ImageSet:
    ids = np.arange(len(table.rows)) if chosen is None else chosen
    form, sizes = measure(table.rows, name)
    if not labelled:
        return ImageSet(name, table.rows, ids, form, sizes, table.fingerprint)
    assert table.labels is not None
    return ImageSet(name, table.rows, ids, form, sizes, table.fingerprint, table.labels[ids], table.classes)


def _open(path: str, image_column: str | None, label_column: str | None, *, labelled: bool = True) -> dict[str, Table]:
    """Every split of a source: train, test and val, or all where it has none."""
    if path == "digits":
        return {"all": _digits()}
    if not path.strip():
        raise UserError("the path to the images is empty; name a folder, a parquet file, or digits")
    place = Path(path).expanduser()
    if not place.exists():
        raise UserError(f"there is no file or folder {path}{_neighbours(place)}")
    if place.is_file():
        if place.suffix != ".parquet":
            raise UserError(f"{path} is a file, but not a parquet file; give a folder of images or of parquet files")
        return _parquet({"all": [place]}, image_column, label_column, labelled)
    files = sorted(f for f in place.glob("*.parquet") if not f.name.startswith("."))
    if files:
        return _parquet(_by_split(files), image_column, label_column, labelled)
    return _folder(place)


def _neighbours(place: Path) -> str:
    parent = place.parent
    if not parent.is_dir():
        return f" (nor the folder {parent})"
    return did_you_mean(place.name, ["digits", *(p.name for p in parent.iterdir())]) if str(place) != "." else ""


def _digits() -> Table:
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    # 17 grey levels 0..16; times 15 they use the 8-bit range and stay exact.
    pixels = (bunch.images[:, None] * 15).astype(np.uint8)
    digest = hashlib.sha256(pixels.tobytes()).hexdigest()
    return Table(ArrayRows(pixels, "digits"), bunch.target.astype(np.int64), tuple("0123456789"), digest)


def _image_files(root: Path) -> tuple[list[str], list[str]]:
    """Relative paths of image files below a folder, sorted, and of other visible files."""
    found: list[str] = []
    other: list[str] = []
    for folder, folders, files in os.walk(root, followlinks=True):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for file in sorted(files):
            if file.startswith(".") or file.lower() in _JUNK:
                continue
            relative = (Path(folder) / file).relative_to(root).as_posix()
            (found if Path(file).suffix.lower() in SUFFIXES else other).append(relative)
    return sorted(found), other


def _folder(root: Path) -> dict[str, Table]:
    found, other = _image_files(root)
    if not found:
        hint = f"; it has {len(other)} other files, e.g. {other[0]}" if other else ""
        raise UserError(f"the folder {root} has no images ({' '.join(SUFFIXES)}){hint}")
    splits: dict[str, list[str]] = {}
    for path in found:
        first, _, rest = path.partition("/")
        splits.setdefault(_SPLITS.get(first.lower(), "all") if rest else "all", []).append(path)
    if set(splits) != {"all"} and "all" in splits:
        raise UserError(
            f"{root} mixes split folders ({', '.join(s for s in splits if s != 'all')}) with other images, "
            f"e.g. {splits['all'][0]}; move one or the other"
        )
    if "all" not in splits and "train" not in splits:
        raise UserError(f"{root} has a {' and a '.join(splits)} folder, but no train folder")
    depth = 0 if "all" in splits else 1
    parts = {name: [_class_of(path, depth) for path in paths] for name, paths in splits.items()}
    labelled = all(None not in classes for classes in parts.values())
    names = tuple(sorted({c for classes in parts.values() for c in classes if c is not None})) if labelled else ()
    if len(names) < 2:
        labelled, names = False, ()
    number = {name: i for i, name in enumerate(names)}
    tables = {}
    for split, paths in splits.items():
        labels = np.array([number[c] for c in parts[split] if c], dtype=np.int64) if labelled else None
        digest = hashlib.sha256()
        for path in paths:
            digest.update(f"{path}\0{_bytes_of(root / path)}\n".encode())
        tables[split] = Table(FileRows(root, paths), labels, names, digest.hexdigest())
    return tables


def _bytes_of(path: Path) -> int:
    """A file's size; -1 for a link to nothing, which decoding will name."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _class_of(path: str, depth: int) -> str | None:
    """The folder a file's class is named by, or None for a file that lies directly in its split."""
    words = path.split("/")
    return words[depth] if len(words) > depth + 1 else None


def _by_split(files: list[Path]) -> dict[str, list[Path]]:
    splits: dict[str, list[Path]] = {}
    for file in files:
        word = re.split(r"[^a-z]", file.stem.lower())[0]
        splits.setdefault(_SPLITS.get(word, "all"), []).append(file)
    if "all" in splits and len(splits) > 1:
        raise UserError(
            f"{files[0].parent} mixes train/test parquet files with others, e.g. {splits['all'][0].name}; "
            "name every file by its split, or none"
        )
    if not {"all", "train"} & set(splits):
        raise UserError(f"{files[0].parent} has {' and '.join(splits)} parquet files, but no train files")
    return splits


def _parquet(
    splits: dict[str, list[Path]], image_column: str | None, label_column: str | None, labelled: bool
) -> dict[str, Table]:
    from ssl_vit.data.parquet import open_parquet

    return {
        name: Table(*parts)
        for name, parts in open_parquet(splits, image_column, label_column, labelled=labelled).items()
    }
