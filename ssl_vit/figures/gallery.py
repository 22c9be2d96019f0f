"""All pictures of a verdict: what every start finds alike, where it looks, and where it is sure and wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int

from ssl_vit.core.files import write_atomically
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


def save_gallery(
    starts: dict[str, Start], train: ImageSet, test: ImageSet, folder: Path
) -> list[dict[str, str | None]]:
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
    made: list[dict[str, str | None]] = []
    for key, start in starts.items():
        if start.exported is not None and start.features is not None:
            made.append(_neighbours(key, starts, train, test, folder))
    for key, start in starts.items():
        if start.answers is not None:
            made.append(_mistakes(key, start, test, folder, size=_size(start, starts, test)))
    for key, start in starts.items():
        run = start.exported.folder.parent if start.exported is not None else None
        if run is not None and (run / "figures" / "reconstructions.png").exists():
            shutil.copyfile(run / "figures" / "reconstructions.png", folder / f"{key}-reconstructions.png")
            caption = (
                "Images of the pre-training pool, what the encoder saw of them, and what the decoder made of the rest. "
                "The decoder is thrown away after pre-training: good pictures are no aim and no measure of features."
            )
            made.append(_entry(key, "reconstructions", "Reconstructions", caption))
    chosen = spread_over_classes(test.truth, _LOOKED_INTO)
    for key, start in starts.items():
        if start.exported is not None:
            made += _looked_into(key, start.name, start.exported, test, chosen, folder)
    write_atomically(folder / "pictures.json", json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    return made


def _entry(key: str, kind: str, title: str, caption: str, *, drawn: bool = True) -> dict[str, str | None]:
    return {"file": f"{key}-{kind}.png" if drawn else None, "title": title, "caption": caption, "start": key}


def _size(start: Start, starts: dict[str, Start], test: ImageSet) -> int:
    """Side in pixels at which images are shown: of the start's own input, or of another start's."""
    sizes = [each.exported.size for each in (start, *starts.values()) if each.exported is not None]
    return sizes[0] if sizes else min(test.sizes.short_side, _LARGEST)


def _neighbours(
    key: str, starts: dict[str, Start], train: ImageSet, test: ImageSet, folder: Path
) -> dict[str, str | None]:
    compared = {starts[name].name: starts[name].features for name in (key, PIXELS) if name in starts}
    features = {name: both for name, both in compared.items() if both is not None}
    own = next(iter(features.values()))[1]
    queries = own.index[spread_over_classes(own.labels, _QUERIES[len(features)])]
    found = {name: nearest(*both, queries) for name, both in features.items()}
    title = "Nearest training images"
    path, size = folder / f"{key}-neighbours.png", _size(starts[key], starts, test)
    save_neighbours(train, test, queries, found, path, size=size, title=f"{title}: {starts[key].name}")
    return _entry(key, "neighbours", title, _counted(train, test, queries, found))


def _counted(
    train: ImageSet, test: ImageSet, queries: Int[np.ndarray, " q"], found: dict[str, Int[np.ndarray, "q k"]]
) -> str:
    """What the picture of neighbours shows, in numbers."""
    same = {name: alike(train, test, queries, neighbours) for name, neighbours in found.items()}
    counts = [f"{name} {int(s.sum())} of {s.size}" for name, s in same.items() if s is not None]
    what = "class" if test.kind == "class" else "labels"
    shown = (
        f"{len(queries)} test images, chosen without a look at any result, and the training images most similar to "
        "them by the cosine of their features."
    )
    told = f" Neighbours with the same {what}: {', '.join(counts)}; k-NN measures this on all test images."
    return shown + told if counts else shown


def _mistakes(key: str, start: Start, test: ImageSet, folder: Path, *, size: int) -> dict[str, str | None]:
    assert start.answers is not None
    answers, title = start.answers, "Most confident mistakes"
    path = folder / f"{key}-mistakes.png"
    wrong = save_mistakes(test, answers, path, size=size, title=f"{title}: {start.name}")
    who, count = (f"{start.name}, {start.trained}," if start.trained else start.name), len(answers.predicted)
    who = who[:1].upper() + who[1:]
    if not len(wrong):
        caption = f"No picture: {who} makes no mistake on {count:,} test images."
        return _entry(key, "mistakes", title, caption, drawn=False)
    first = wrong[0]
    position = int(answers.positions[first])
    caption = (
        f"{who} is wrong on {len(wrong):,} of {count:,} test images. The surest mistake: "
        f"{file_name(test.where(position), 60)} is {test.classes[test.truth[position]]}, and was taken for "
        f"{test.classes[answers.predicted[first]]} ({per_cent(float(answers.confidence[first]))}). "
        "Look here first for images whose label is wrong or that show two classes."
    )
    return _entry(key, "mistakes", title, caption)


def _looked_into(
    key: str, name: str, exported: Exported, test: ImageSet, chosen: Int[np.ndarray, " q"], folder: Path
) -> list[dict[str, str | None]]:
    """Attention where there is a class token, and features as colours."""
    backbone = exported.backbone
    batch, _ = chosen_images(test, chosen, next(backbone.parameters()).device)
    words = f"{name}: {len(batch.index)} of {len(test):,} test images at {exported.size} px"
    shown = Shown(eval_images(batch, exported.scale, exported.size, torch.float32), exported.scale, words)
    made: list[dict[str, str | None]] = []
    if isinstance(backbone, TokenBackbone) and backbone.class_token:
        save_attention(backbone, shown, folder / f"{key}-attention.png")
        caption = "Where the class token looks in the last block, with each head and on average."
        made.append(_entry(key, "attention", "Attention", caption))
    save_components(backbone, shown, folder / f"{key}-pca.png")
    caption = "Places with the same colour have similar features, in one image and between images."
    return [*made, _entry(key, "pca", "Features as colours", caption)]
