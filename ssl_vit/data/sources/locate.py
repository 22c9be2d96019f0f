"""From a path to the splits that lie there: which reader reads it, and what is wrong where none can."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np

from ssl_vit.configs import OBJECT, SourceConfig
from ssl_vit.configs.paths import is_remote, missing, on_hub
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.data.images import ArrayRows
from ssl_vit.data.sources.folder import SUFFIXES, NoImageColumn, NoImages, open_folder
from ssl_vit.data.sources.part import SPLITS, Part
from ssl_vit.data.sources.remote import ENDINGS, File

_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_KINDS = (*ENDINGS, ".arrow")
_LISTS = (".csv", ".tsv", ".jsonl")
_FOR = {
    "image_column": "names a column of a table or an ending in tar shards",
    "label_column": "names a column of a table or what lies beside images in tar shards",
    "target": "says what the labels of a table or of tar shards are",
    "group": "names a column of a table or matches names of files",
    "stream": "reads parquet and tar shards in place",
}


def open_source(cfg: SourceConfig, *, labelled: bool, dataset: Any = None) -> dict[str, Part]:
    """Every split of a source, by name; ``all`` where it has none. A ``dataset`` stands in for the path.

    Raises:
        UserError: Where there is nothing, or nothing that can be read.
    """
    if cfg.labels is not None:
        from ssl_vit.data.sources.beside import open_beside

        return open_beside(cfg, lambda images: _images_alone(images, cfg.labels, dataset), labelled=labelled)
    path = cfg.path or ""
    if dataset is not None:
        return _open_dataset(dataset, cfg, labelled)
    if path == "digits":
        _refuse(cfg, tuple(_FOR), "digits comes with scikit-learn as it is")
        return {"all": _digits()}
    if path.startswith(OBJECT):
        from ssl_vit.data.sources.objects import open_handed

        _refuse(cfg, ("stream",), "this is an object of Python")
        return open_handed(cfg, labelled=labelled)
    if not path.strip():
        raise UserError("the path to the images is empty; name a folder, a file, a data set of the hub, or digits")
    if is_remote(path):
        from ssl_vit.data.sources.remote import remote_files

        found, suffix = remote_files(path, cfg.cache_size)
        return _read(_by_split(found, suffix), suffix, replace(cfg, stream=True), labelled)
    place = Path(path).expanduser()
    if not place.exists():
        if not on_hub(path):
            raise UserError(missing(path))
        from ssl_vit.data.sources.hub import load_hub, streamed_files

        if cfg.stream:
            files, suffix = streamed_files(path, missing(path), cfg.cache_size)
            return _read(files, suffix, cfg, labelled)
        return _open_dataset(load_hub(path, missing(path)), cfg, labelled)
    if place.is_file():
        return _open_file(place, cfg, labelled)
    if not place.is_dir():
        raise UserError(f"{place} is neither a file nor a folder; give a folder of images, a table or tar shards")
    if (place / "dataset_dict.json").exists() or (place / "state.json").exists():
        return _open_dataset(_saved(place), cfg, labelled)
    return _open_directory(place, cfg, labelled)


def _images_alone(cfg: SourceConfig, labels: str | None, dataset: Any) -> dict[str, Part]:
    """A source without labels; a folder is one of files, whatever table lies in it."""
    place = Path(cfg.path or "").expanduser()
    if dataset is None and place.is_dir():
        with suppress(NoImages):
            return open_folder(place, cfg, labelled=False, table=labels)
    return open_source(cfg, labelled=False, dataset=dataset)


def _open_file(place: Path, cfg: SourceConfig, labelled: bool) -> dict[str, Part]:
    from ssl_vit.data.sources.readers import READERS

    suffix, known = place.suffix.lower(), (*READERS, ".tar")
    if suffix in known:
        return _read({"all": [place]}, suffix, cfg, labelled)
    hint = "; unpack it first" if place.suffix in (".zip", ".gz", ".tgz", ".bz2", ".xz", ".7z") else ""
    raise UserError(f"{place} is a file, but none of {' '.join(known)}{hint}; give one of those or a folder of images")


def _open_directory(place: Path, cfg: SourceConfig, labelled: bool) -> dict[str, Part]:
    beside = _metadata(place)
    if beside:
        table = next(iter(beside.values()))[0]
        try:
            parts = _read(beside, table.suffix, cfg, labelled)
        except NoImageColumn:  # a table of something else, which --data.labels may know how to use
            with suppress(NoImages):
                return _open_files(place, cfg, labelled, [table])
            raise
        named = sum(len(part.rows) for part in parts.values())
        there = sum(file.suffix.lower() in SUFFIXES for file in place.rglob("*"))
        if "all" in beside and named < there and "," not in (cfg.image_column or ""):
            say_once(
                f"note: {table.name} names {named:,} of {there:,} images in {place}, and the others are not read; "
                f"--data.labels {table} reads all, with the labels of these"
            )
        return parts
    for suffix in _KINDS:
        if files := _visible(place, suffix):
            _say_unread(place, files)
            return _read(_by_split(files, suffix), suffix, cfg, labelled)
    lists = [file for suffix in _LISTS for file in _visible(place, suffix)]
    try:
        return _open_files(place, cfg, labelled, lists)
    except NoImages:  # tables of file names, where there are no images beside them
        if not lists:
            raise
        suffix = lists[0].suffix
        return _read(_by_split(_visible(place, suffix), suffix), suffix, cfg, labelled)


def _open_files(place: Path, cfg: SourceConfig, labelled: bool, lists: list[Path]) -> dict[str, Part]:
    """Image files, beside which tables may lie."""
    found = open_folder(place, cfg, labelled=labelled)
    hint = f"; for the table beside them give --data.labels {lists[0]}" if lists else ""
    _refuse(cfg, ("image_column", "label_column", "target"), f"{place} is a folder of images{hint}")
    _refuse(cfg, ("stream",), f"{place} is a folder of images")
    return found


def _read(files: dict[str, list[Any]], suffix: str, cfg: SourceConfig, labelled: bool) -> dict[str, Part]:
    """Table files or tar shards; what reads them is imported here, because ``datasets`` takes seconds."""
    for file in (file for part in files.values() for file in part if isinstance(file, Path)):
        if file.exists() and not file.is_file():  # a pipe would be waited for
            raise UserError(f"{file} is no regular file; give {suffix} files")
    if suffix == ".tar":
        from ssl_vit.data.sources.shards import open_shards as reader
    elif cfg.stream and suffix == ".parquet":
        from ssl_vit.data.sources.stream import open_row_groups as reader
    else:
        from ssl_vit.data.sources.table_files import open_tables as reader

        _refuse(cfg, ("stream",), f"{cfg.path} is read as {suffix}")
    return reader(files, cfg, labelled=labelled)


def _visible(place: Path, suffix: str) -> list[Path]:
    return sorted(f for f in place.iterdir() if f.suffix.lower() == suffix and not f.name.startswith("."))


def _say_unread(place: Path, files: list[Path]) -> None:
    """Images that lie beside tables or shards are not read, nor are those of the other kind."""
    others = [suffix for suffix in _KINDS if suffix != files[0].suffix.lower()]
    unread = {f"{suffix} file(s)": len(_visible(place, suffix)) for suffix in others}
    unread["image file(s)"] = sum(file.suffix.lower() in SUFFIXES for file in place.rglob("*"))
    if found := " and ".join(f"{count:,} {kind}" for kind, count in unread.items() if count):
        say_once(
            f"note: images are read from {files[0].name}{' and others' * (len(files) > 1)} in {place}, and the "
            f"{found} there are not; move one or the other away"
        )


def _refuse(cfg: SourceConfig, options: tuple[str, ...], what: str) -> None:
    """Refuses options that would have no effect on a source."""
    for option in options:
        if getattr(cfg, option):
            raise UserError(f"--data.{option} (--eval.data.{option}) {_FOR[option]}, but {what}")


def _metadata(place: Path) -> dict[str, list[Path]]:
    """The hub's convention: a table beside the image files, in the folder or in every one of its split folders."""
    folders = {SPLITS.get(p.name.lower(), ""): p for p in place.iterdir() if p.is_dir()}
    for among in ({"all": place}, {name: p for name, p in folders.items() if name}):
        found = {split: [p / n for n in _METADATA if (p / n).exists()][:1] for split, p in sorted(among.items())}
        if found and all(found.values()):
            return found
    return {}


def same_source(one: str, other: str) -> bool:
    """Whether two paths lead to one place."""
    if one == other or "digits" in (one, other):
        return one == other
    return Path(one).expanduser().resolve() == Path(other).expanduser().resolve()


def is_read(cfg: SourceConfig, file: Path) -> bool:
    """Whether a source is read from a file, or would be if that were written where it is not yet.

    Args:
        cfg: The source.
        file: Any.
    """
    if any(given and same_source(given, str(file)) for given in (cfg.path, cfg.labels)):
        return True
    place, ending = Path(cfg.path or "").expanduser(), file.suffix.lower()
    if not cfg.path or not place.is_dir() or not file.resolve().is_relative_to(place.resolve()):
        return False
    if file.name in _METADATA:
        return True
    if ending in _KINDS:
        return file.exists() or file.resolve().parent == place.resolve()
    return ending in _LISTS and not any(one.suffix.lower() in SUFFIXES for one in place.rglob("*"))


def _saved(place: Path) -> Any:
    """What ``save_to_disk`` wrote."""
    import datasets

    from ssl_vit.data.sources.readers import check_places

    try:
        found = datasets.load_from_disk(place)
        for part in found.values() if isinstance(found, dict) else (found,):
            check_places(part.data.table)
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{place} looks like a saved data set, but is not whole: {' '.join(str(error).split())}"
        ) from error


def _open_dataset(dataset: Any, cfg: SourceConfig, labelled: bool) -> dict[str, Part]:
    """A ``datasets.Dataset`` or several by split name."""
    import datasets

    from ssl_vit.data.sources.table_files import open_datasets

    if isinstance(dataset, (datasets.IterableDataset, datasets.IterableDatasetDict)):
        raise UserError(
            "an IterableDataset cannot be read at a position, so a run on it could not be continued exactly; "
            "give a datasets.Dataset, or parquet or tar shards with --data.stream true"
        )
    place = cfg.path or ""
    _refuse(cfg, ("stream",), f"{place} is a data set")
    given = dataset if isinstance(dataset, dict) else {"all": dataset}
    if not given or not all(isinstance(data, datasets.Dataset) for data in given.values()):
        raise UserError(f"{type(dataset).__name__} is no data set; give a datasets.Dataset, or several by split name")
    splits = {SPLITS.get(str(name).lower(), str(name)): data for name, data in given.items()}
    if len(splits) < len(given):
        raise UserError(f"{place} has two splits of one meaning among {', '.join(map(str, given))}; rename one")
    return open_datasets(splits, cfg, labelled=labelled, place=place)


def _digits() -> Part:
    """From scikit-learn's file, because importing scikit-learn takes seconds."""
    file = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    table = np.loadtxt(str(file), delimiter=",", dtype=np.uint8)
    # 17 grey levels 0..16; times 15 they use the 8-bit range and stay exact.
    pixels = table[:, :64].reshape(-1, 1, 8, 8) * np.uint8(15)
    digest = hashlib.sha256(pixels.tobytes()).hexdigest()
    labels = table[:, 64].astype(np.int64)
    return Part(ArrayRows(pixels, "digits"), digest, labels=labels, classes=tuple("0123456789"))


def _by_split(files: Sequence[File], suffix: str) -> dict[str, list[Any]]:
    """Files (here or elsewhere) by the split that a word of their name says; ``all`` where none does."""
    splits, kind = dict[str, list[Any]](), suffix.lstrip(".")
    for file in files:
        words = re.split(r"[^a-z]+", file.stem.lower())
        splits.setdefault(next((SPLITS[w] for w in words if w in SPLITS), "all"), []).append(file)
    if "all" in splits and len(splits) > 1:
        raise UserError(
            f"{files[0].parent} mixes train/test {kind} files with others, e.g. {splits['all'][0].name}; "
            "name every file by its split, or none"
        )
    if not {"all", "train"} & set(splits):
        raise UserError(f"{files[0].parent} has {' and '.join(splits)} {kind} files, but no train files")
    return splits
