"""Which images may be trained on and which are judged on, and how that came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ssl_vit.configs import DataConfig, LabelledDataConfig, PoolConfig, SourceConfig
from ssl_vit.configs.paths import on_hub
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.notices import say_once
from ssl_vit.data.decoding.formats import MOST, Format
from ssl_vit.data.images import ImageSet, Sizes, measure
from ssl_vit.data.sources.locate import open_source, same_source
from ssl_vit.data.sources.part import SPLITS, Part, given, join
from ssl_vit.data.sources.splits import TEST_SHARE, made_split


class Labelled(NamedTuple):
    """What evaluation and supervised training work on."""

    train: ImageSet
    test: ImageSet
    split: str
    """How the test images came about, in words."""
    whole: str = ""
    """Fingerprint of the training images before any were drawn."""
    labels: str = ""
    """Where labels come from and how many images have one, in words."""


def open_pool(data: DataConfig, judged_on: LabelledDataConfig, dataset: Any = None) -> tuple[ImageSet, str]:
    """The images to pre-train on; labels are never handed out.

    Where the same source is also judged on and has no test split of its own, the images of the split that evaluation
    will make are kept out of the pool, unless pre-training on them was declared.

    A ``datasets.Dataset`` or ``DatasetDict`` may stand in for the path. The second result is a sentence about the pool.
    """
    parts = open_source(data, labelled=False, dataset=dataset)
    chosen = _trained_splits(parts, data, "--data.split")
    pool = _image_set(data, parts, chosen)
    judged = _merged(data, judged_on)
    declared = isinstance(data, PoolConfig) and data.transductive
    same = same_source(judged.path or "", data.path)
    if same and not declared and _held_split(parts, judged, judged_on) is None:
        test = _made_test(judged, {c: parts[c] for c in chosen}, dataset)
        if test is not None:
            note = f"{len(test):,} images stay out as a test split" if len(test) else "every image"
            return pool.subset(np.setdiff1d(np.arange(len(pool)), test)), note
    others = ", ".join(f"{len(part.rows):,} {other}" for other, part in parts.items() if other not in chosen)
    whole = "every image" if list(parts) == ["all"] else f"{' and '.join(chosen)} split"
    return pool, whole + (f" ({others} images stay out)" if others else "")


def _made_test(judged: SourceConfig, pool: Mapping[str, Part], dataset: Any) -> np.ndarray | None:
    """Positions in the joined pool of the test split that will be made; None where nothing can be judged anyway."""
    try:
        parts = open_source(judged, labelled=True, dataset=dataset)
        splits = _trained_splits(parts, judged, "--eval.data.split")
        whole = join([parts[s] for s in splits])
    except UserError as error:
        if any(getattr(judged, name) is not None for name in ("labels", "label_column", "target", "group", "split")):
            raise
        say_once(f"note: no image stays out for testing, because no labels are read: {error}")
        return None
    if whole.labels is None or not given(whole.labels).any():
        return None
    for split, part in pool.items():
        count = len(parts[split].rows) if split in parts else 0
        if count != len(part.rows):
            raise UserError(
                f"--data and --eval.data read {judged.path} differently (split {split}: {len(part.rows):,} images, and "
                f"{count:,}), so the test images cannot be kept out of the pool; give both the same options"
            )
    chosen, known = np.zeros(len(whole.rows), dtype=bool), np.flatnonzero(given(whole.labels))
    groups = None if whole.groups is None else whole.groups[known]
    chosen[known[made_split(whole.labels[known], whole.kind, groups)[1]]] = True
    ends = np.cumsum([len(parts[split].rows) for split in splits])
    held = dict(zip(splits, np.split(chosen, ends[:-1]), strict=True))
    none = {split: np.zeros(len(part.rows), dtype=bool) for split, part in pool.items()}
    return np.flatnonzero(np.concatenate([held.get(split, none[split]) for split in pool]))


def open_labelled(data: DataConfig, labelled: LabelledDataConfig, dataset: Any = None) -> Labelled:
    """The labelled training and test images, those of the pool where nothing else is named; ``dataset`` as there.

    Raises:
        UserError: Where there are no labels or only one class.
    """
    cfg = _merged(data, labelled)
    path = cfg.path or ""
    parts = open_source(cfg, labelled=True, dataset=dataset)
    held = _held_split(parts, cfg, labelled)
    # The labelled baseline lets --data.split stand in for --eval.data.split.
    option = "--data.split" if cfg.split and cfg.split == data.split else "--eval.data.split"
    splits = _trained_splits(parts, cfg, option)
    for split in [*splits, *([held] if held else [])]:
        if parts[split].labels is None:
            raise UserError(
                f"labels are needed, but {path} has none: sort the images into one folder per class, name a table of "
                "labels with --eval.data.labels, a column with --eval.data.label_column, or other images with "
                "--eval.data.path"
            )
    images = sum(len(parts[split].rows) for split in {*splits, *([held] if held else [])})
    whole = _image_set(cfg, parts, splits, labelled=True)
    if held is not None:
        if held in splits:
            raise UserError(f"the split {held} of {path} cannot be trained on and judged on; name another test split")
        train, test = whole, _image_set(cfg, parts, [held], labelled=True)
        for name, images_of, instead in ((" and ".join(splits), train, option), (held, test, "--data.test_split")):
            if not len(images_of):
                raise UserError(
                    f"no image of the {name} split of {path} has a label; name another with {instead}, or have a test "
                    f"split made of all labels by --data.split {'+'.join([*splits, held])}"
                )
        split = f"its own {held} split{_shared_groups(train, test, cfg.group)}"
    else:
        if not len(whole):
            raise UserError(
                f"no image of the {' and '.join(splits)} split of {path} has a label; name another with {option}"
            )
        chosen = made_split(whole.truth, whole.kind, whole.groups)
        train, test = (whole.subset(rows) for rows in chosen)
        split = _made(whole, cfg.group, test)
    train, test = _one_format(train, test)
    if whole.kind == "class" and len(np.unique(train.truth)) < 2:
        only = ", ".join(train.classes[int(label)] for label in np.unique(train.truth))
        raise UserError(f"{path} has training labels of one class only ({only}); two are needed")
    if not len(test):
        few = "with one image per class" if whole.kind == "class" else "of so few images"
        raise UserError(f"{path} has no test images: {few} nothing can be held out")
    count = len(whole) + (len(test) if held is not None else 0)
    share = f"all {images:,} images have" if count == images else f"{count:,} of {images:,} images have"
    return Labelled(train, test, split, train.fingerprint, f"{train.origin}: {share} a label".removeprefix(": "))


def open_images(data: DataConfig) -> ImageSet:
    """Every image of a source without labels, split after split: train, val, test, then others."""
    parts = open_source(data, labelled=False)
    return _image_set(data, parts, shown_splits(parts, data))


def shown_splits(parts: Mapping[str, Part], data: DataConfig) -> list[str]:
    """The splits of a source in the order of ``open_images``: those of ``--data.split``, or all."""
    if data.split:
        return _trained_splits(parts, data, "--data.split")
    return sorted(parts, key=["train", "val", "test", *parts].index)


def labels_here(data: DataConfig, judged_on: LabelledDataConfig) -> Labelled | None:
    """What a pre-training run says of the labelled images, which it does not train on.

    Args:
        data: The pool.
        judged_on: The labelled images.

    Returns:
        None where there are none, where they are not on this machine, and where reading them would take long.
    """
    if data.stream or on_hub(judged_on.path or data.path):
        return None
    try:
        return open_labelled(data, judged_on)
    except UserError:
        return None


def _made(whole: ImageSet, group: str | None, test: ImageSet) -> str:
    """How a made test split came about."""
    even = {"class": "of every class", "multilabel": "balanced by label", "regression": "balanced by target"}
    if whole.groups is None:
        alone = ""
        if whole.kind == "class":
            lost = np.setdiff1d(whole.truth, test.truth)
            alone = "".join(f"; {whole.classes[c]} has one image and is never judged" for c in lost[:5])
        return f"{TEST_SHARE:.0%} {even[whole.kind]}, chosen by a fixed hash{alone}"
    held, count = (len(np.unique(np.asarray(images.groups))) for images in (test, whole))
    even_groups = f"{even[whole.kind]} as evenly as they allow"
    return f"{held:,} of {count:,} groups ({group}), chosen by a fixed hash and {even_groups}"


def _shared_groups(train: ImageSet, test: ImageSet, group: str | None) -> str:
    """What is known of groups on both sides of a given split, for the sentence about it; warns of any."""
    if train.groups is None or test.groups is None:
        return ""
    shared = np.intersect1d(train.groups, test.groups)
    if not len(shared):
        return f", no {group} on both sides"
    images = int(np.isin(test.groups, shared).sum())
    say_once(
        f"warning: {len(shared):,} groups occur in the training and in the test split of {test.name}: {images:,} of "
        f"{len(test):,} test images have relatives in training"
    )
    return f", {len(shared):,} groups ({group}) on both sides"


def _merged(data: DataConfig, labelled: LabelledDataConfig) -> SourceConfig:
    """Options of the labelled source: what it does not say itself is as for the pool where both are one source."""
    named = {f.name: getattr(labelled, f.name) for f in fields(SourceConfig)}
    if labelled.path is None or same_source(labelled.path, data.path):
        shared = {f.name: getattr(data, f.name) for f in fields(SourceConfig) if f.name != "split"}
        named = {name: shared.get(name) if value is None else value for name, value in named.items()}
    else:
        named["root"] = roots_with(data.path, named["root"] or data.root)
    return SourceConfig(**named)


def roots_with(pool: str, root: str | None) -> str | None:
    """``--data.root`` and before it the folder of the pool, whose files a table of labels may name.

    Args:
        pool: ``--data.path``.
        root: As given.
    """
    place = Path(pool).expanduser()
    folder = str(place if place.is_dir() else place.parent) if place.exists() else None
    return ",".join(filter(None, (folder, root))) or None


def _trained_splits(parts: Mapping[str, Part], cfg: SourceConfig, option: str) -> list[str]:
    """The splits to train on: those that were named, by the option of this name, or the usual one."""
    if cfg.split:
        return list(dict.fromkeys(_named(parts, word, cfg.path or "", option) for word in cfg.split.split("+")))
    if "train" in parts:
        return ["train"]
    if len(parts) == 1 and not {"test", "val"} & set(parts):
        return list(parts)
    raise UserError(f"{cfg.path} has the splits {', '.join(parts)}, but no train; name one with {option}")


def _held_split(parts: Mapping[str, Part], cfg: SourceConfig, labelled: LabelledDataConfig) -> str | None:
    """The split to judge on: the named one, test or val; None where one has to be made."""
    if cfg.test_split is not None:
        option = "--data.test_split" if labelled.test_split is None else "--eval.data.test_split"
        return _named(parts, cfg.test_split, cfg.path or "", option)
    trained = {SPLITS.get(word.lower(), word) for word in (cfg.split or "").split("+")}
    return next((split for split in ("test", "val") if split in parts and split not in trained), None)


def _named(parts: Mapping[str, Part], word: str, path: str, option: str) -> str:
    for name in (word, SPLITS.get(word.lower(), word)):
        if name in parts:
            return name
    if list(parts) == ["all"]:
        raise UserError(f"{option} {word}: {path} has no splits (a column split counts with train, test or val in it)")
    raise UserError(f"{option} {word}: {path} has the splits {', '.join(parts)}{did_you_mean(word, list(parts))}")


def _one_format(train: ImageSet, test: ImageSet) -> tuple[ImageSet, ImageSet]:
    """Both splits in the wider of their formats, their canvas decided by the training images.

    Raises:
        UserError: For numbers of channels that do not mix.
    """
    channels = {train.form.channels, test.form.channels}
    if len(channels) > 1 and channels != {1, 3}:
        raise UserError(
            f"training and test images of {train.name} have different numbers of channels: {train.form.channels} "
            f"({train.where(0)}) and {test.form.channels} ({test.where(0)}); only grey (1) and RGB (3) mix"
        )
    form = Format(max(train.form.channels, test.form.channels), max(train.form.bits, test.form.bits))
    common = train.sizes.common if train.sizes.common == test.sizes.common else None
    usual = None if common else train.sizes.common or train.sizes.usual
    sizes = Sizes(common, train.sizes.short_side, usual)
    return replace(train, form=form, sizes=sizes), replace(test, form=form, sizes=sizes)


def _image_set(cfg: SourceConfig, parts: Mapping[str, Part], chosen: Sequence[str], labelled: bool = False) -> ImageSet:
    """Some splits of a source, joined."""
    name = cfg.path or ""
    part = join([parts[split] for split in chosen])
    form, sizes = measure(part.rows, name, part.blocks)
    pieces = tuple((p.fingerprint, len(p.rows)) for p in part.joined or (part,))
    found = ImageSet(
        name, part.rows, np.arange(len(part.rows)), form, sizes, part.fingerprint, pieces=pieces,
        splits=frozenset(p.fingerprint for p in parts.values()), groups=part.groups, group_names=part.group_names,
        blocks=part.blocks, most=cfg.max_pixels or MOST,
    )  # fmt: skip
    if not labelled or part.labels is None:
        return found
    found = replace(found, labels=part.labels, classes=part.classes, kind=part.kind, origin=part.origin)
    known = given(part.labels)
    return found if known.all() else found.subset(np.flatnonzero(known))
