"""All pictures of a verdict: what every start finds alike, where it looks, and where it is sure and wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from ssl_vit.core.files import write_atomically, write_bytes_atomically
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.loader import chosen_images
from ssl_vit.evaluation.features import Features
from ssl_vit.exports.timm_folder import Exported
from ssl_vit.figures.attention import save_attention
from ssl_vit.figures.mistakes import Answers, per_cent, save_mistakes
from ssl_vit.figures.neighbours import alike, nearest, save_neighbours, spread_over_classes
from ssl_vit.figures.pca import save_components
from ssl_vit.figures.shown import Shown
from ssl_vit.figures.words import file_name
from ssl_vit.models.backbone import TokenBackbone
from ssl_vit.views.evaluation import eval_images

PIXELS = "pixels"
"""The start whose neighbours stand beside every other's."""
_QUERIES = {1: 8, 2: 4}
"""Test images whose neighbours are drawn, by the number of representations beside each other."""
_LOOKED_INTO = 6
"""Test images whose attention and features are drawn."""
_LARGEST = 224
_RECONSTRUCTIONS = (
    "Images of the pre-training pool, what the encoder saw of them, and what the decoder made of the rest. "
    "The decoder is thrown away after pre-training: good pictures are no aim and no measure of features."
)
Entry = dict[str, str | None]


class Start(NamedTuple):
    """What is known of one way to begin; what is None is not drawn."""

    name: str
    """As people read it."""
    exported: Exported | None = None
    """The pre-trained backbone."""
    features: tuple[Features, Features] | None = None
    """Of the labelled training and test images."""
    answers: Answers | None = None
    """Of the best trained classifier, for images of one class each."""
    trained: str = ""
    """How that classifier was trained, in words: "fine-tuned on all 1,438 labels, draw 0"."""


class _Gallery(NamedTuple):
    """What there is to draw of, and where pictures go."""

    starts: dict[str, Start]
    train: ImageSet
    test: ImageSet
    folder: Path

    def path(self, key: str, kind: str) -> Path:
        return self.folder / f"{key}-{kind}.png"

    def size(self, start: Start) -> int:
        """Side in pixels at which images are shown: of the start's own input, or of another start's."""
        sizes = [each.exported.size for each in (start, *self.starts.values()) if each.exported is not None]
        return sizes[0] if sizes else min(self.test.sizes.short_side, _LARGEST)


def save_gallery(starts: dict[str, Start], train: ImageSet, test: ImageSet, folder: Path) -> list[Entry]:
    """Draws what there is to draw, and lists it in ``pictures.json``.

    Args:
        starts: By their word (``mae``, ``scratch``...); neighbours in raw pixels come from ``pixels``.
        train: Labelled training images, as features were extracted from them.
        test: Labelled test images.
        folder: Where pictures go.

    Returns:
        One entry per picture: ``file``, ``title`` (without the start's name), ``caption``, ``start``; where a
        classifier made no mistake the file is None and the caption says so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    gallery, makers = _Gallery(starts, train, test, folder), (_neighbours, _mistakes, _looked_into)
    made = [entry for make in makers for key, start in starts.items() for entry in make(gallery, key, start)]
    write_atomically(folder / "pictures.json", json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    return made


def _entry(path: Path | None, key: str, title: str, caption: str) -> Entry:
    return {"file": path.name if path else None, "title": title, "caption": caption, "start": key}


def _neighbours(gallery: _Gallery, key: str, start: Start) -> Iterator[Entry]:
    if start.exported is None or start.features is None:
        return
    _, train, test, _ = gallery
    pixels = gallery.starts.get(PIXELS, start)
    features = {each.name: each.features for each in (start, pixels) if each.features is not None}
    own = start.features[1]
    queries = own.index[spread_over_classes(own.labels, _QUERIES[len(features)])]
    found = {name: nearest(*both, queries) for name, both in features.items()}
    title, path = "Nearest training images", gallery.path(key, "neighbours")
    save_neighbours(train, test, queries, found, path, size=gallery.size(start), title=f"{title}: {start.name}")
    same = {name: alike(train, test, queries, neighbours) for name, neighbours in found.items()}
    counts = ", ".join(f"{name} {int(s.sum())} of {s.size}" for name, s in same.items() if s is not None)
    what = "class" if test.kind == "class" else "labels"
    told = f" Neighbours with the same {what}: {counts}; k-NN measures this on all test images."
    yield _entry(path, key, title, (
        f"{len(queries)} test images, chosen without a look at any result, and the training images most similar to "
        f"them by the cosine of their features.{told if counts else ''}"
    ))  # fmt: skip


def _mistakes(gallery: _Gallery, key: str, start: Start) -> Iterator[Entry]:
    if start.answers is None:
        return
    answers, test, title, path = start.answers, gallery.test, "Most confident mistakes", gallery.path(key, "mistakes")
    wrong = save_mistakes(test, answers, path, size=gallery.size(start), title=f"{title}: {start.name}")
    who, count = (f"{start.name}, {start.trained}," if start.trained else start.name), len(answers.predicted)
    who = who[:1].upper() + who[1:]
    if not len(wrong):
        yield _entry(None, key, title, f"No picture: {who} makes no mistake on {count:,} test images.")
        return
    first = wrong[0]
    position = int(answers.positions[first])
    yield _entry(path, key, title, (
        f"{who} is wrong on {len(wrong):,} of {count:,} test images. The surest mistake: "
        f"{file_name(test.where(position), 60)} is {test.classes[test.truth[position]]}, and was taken for "
        f"{test.classes[answers.predicted[first]]} ({per_cent(float(answers.confidence[first]))}). "
        "Look here first for images whose label is wrong or that show two classes."
    ))  # fmt: skip


def _looked_into(gallery: _Gallery, key: str, start: Start) -> Iterator[Entry]:
    """What its run drew of itself, attention where there is a class token, and features as colours."""
    if start.exported is None:
        return
    exported, backbone, test = start.exported, start.exported.backbone, gallery.test
    drawn, path = exported.folder.parent / "figures" / "reconstructions.png", gallery.path(key, "reconstructions")
    if drawn.exists():
        write_bytes_atomically(path, drawn.read_bytes())
        yield _entry(path, key, "Reconstructions", _RECONSTRUCTIONS)
    chosen = spread_over_classes(test.truth, _LOOKED_INTO)
    batch, _ = chosen_images(test, chosen, next(backbone.parameters()).device)
    words = f"{start.name}: {len(batch.index)} of {len(test):,} test images at {exported.size} px"
    pixels = eval_images(batch, exported.scale, exported.size, torch.float32)
    shown = Shown(pixels, exported.scale, words, backbone)
    if isinstance(backbone, TokenBackbone) and backbone.reads_class_token:
        path = gallery.path(key, "attention")
        save_attention(backbone, shown, path)
        caption = "Where the class token looks in the last block, with each head and on average."
        yield _entry(path, key, "Attention", caption)
    path = gallery.path(key, "pca")
    save_components(backbone, shown, path)
    caption = "Places with the same colour have similar features, in one image and between images."
    yield _entry(path, key, "Features as colours", caption)
