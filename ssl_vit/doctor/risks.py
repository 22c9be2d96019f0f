"""Where mirror images, colours or crops may change what an image is: measured on the images, not guessed from names.

A mirror image is harmless where mirrored images lie as near to the others as the images themselves do, and, with
labels, among images of their own class. The very nearest neighbours are left out: they may be tiles of one picture.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8

from ssl_vit.configs import ResolvedPretraining
from ssl_vit.doctor.findings import Findings
from ssl_vit.doctor.sample import Sample
from ssl_vit.leaks.registering import SIDE

_ASKED, _CROWD = 400, 3000
"""Images that are mirrored, and those among which neighbours are looked for."""
_SKIPPED, _VOTES = 10, 20
"""Nearest neighbours that may be copies, and those after them that count."""
_LEAST = 100
"""Images below which nothing is measured."""
_APART = 1.25
"""Mirrored images so many times farther from the others than the images themselves have a direction."""
_LOST = 0.7
"""Share of the neighbours' right answers below which mirroring changes classes."""
_TOLD = 0.4
"""Share of the way from guessing to certainty that brightness and colour alone go."""
_HELD, _MANY = 0.25, 0.1
"""A crop with less than this share of an image's detail misses it; so many crops that do are too many."""
_CROPS = 8
_SIDES = re.compile(r"(?<![a-z])(left|right|clockwise|counter\w*|north|south|east|west|up|down|upside)(?![a-z])", re.I)
_SIZES = re.compile(
    r"(?<![a-z])(size|area|length|width|height|diameter|radius|volume|count|number|distance|age)(?![a-z])", re.I
)
_ANGLES = re.compile(r"(?<![a-z])(angle|orientation|direction|rotation|heading|yaw)(?![a-z])", re.I)


class Answers(NamedTuple):
    """What neighbours say of images."""

    distance: float
    """Median over images of how far their neighbours are."""
    right: float | None
    """Share of images whose neighbours mostly have their class, the mean over classes; None without labels."""


def examine_risks(
    sample: Sample, labels: np.ndarray | None, classes: Sequence[str], kind: str, cfg: ResolvedPretraining
) -> Findings:
    """Whether flips, colours and crops may change labels.

    Args:
        sample: Decoded images.
        labels: Of every decoded image, as ``kind`` says, -1 where one has no class; None where there are none.
        classes: Their names.
        kind: What they are.
        cfg: Resolved options of the method whose views are looked at.
    """
    found = Findings("what views may change")
    shows = np.flatnonzero(sample.shows)
    known = labels[shows] if labels is not None and kind == "class" else None
    thumbnails = sample.thumbnails[shows]
    _mirrors(found, thumbnails, known, classes, kind, cfg)
    _colours(found, sample, labels if kind == "class" else None, kind, cfg)
    _crops(found, thumbnails, classes, kind, cfg)
    return found


def _classified(labels: np.ndarray | None) -> np.ndarray | None:
    """Which images have a class; None where they are too few to tell anything."""
    places = np.flatnonzero(labels >= 0) if labels is not None else np.empty(0)
    return places if len(places) >= _LEAST else None


def _group(cfg: ResolvedPretraining) -> str:
    return "crops" if hasattr(cfg, "crops") else "augment"


def _mirrors(
    found: Findings, thumbnails: np.ndarray, labels: np.ndarray | None, classes: Sequence[str], kind: str,
    cfg: ResolvedPretraining,
) -> None:  # fmt: skip
    flips = bool(getattr(getattr(cfg, _group(cfg), None), "flip", False))
    use = f"--{_group(cfg)}.flip false" if flips else ""
    sided = [name for name in classes if (_ANGLES if kind == "regression" else _SIDES).search(name.replace("_", " "))]
    if sided:
        _told(found, f"the labels {', '.join(sided[:4])} tell sides or directions, which a mirror image exchanges", use)
    if len(thumbnails) < _LEAST:
        found.say("mirror images", f"not measured: that takes {_LEAST} images that show something")
        return
    own = _classified(labels)
    thumbnails, labels = (thumbnails, None) if own is None or labels is None else (thumbnails[own], labels[own])
    straight, mirrored = (
        answers(thumbnails, labels, changed) for changed in (thumbnails, np.ascontiguousarray(thumbnails[:, :, ::-1]))
    )
    times = mirrored.distance / max(1e-6, straight.distance)
    far = f"mirrored images are {times:.2f} times as far from the others as the images are"
    if straight.right is not None and mirrored.right is not None:
        before, after = (f"{100 * each:.0f} %" for each in (straight.right, mirrored.right))
        far += f"; their neighbours tell the class of {before}, and of {after} once they are mirrored"
    found.say("mirror images", far)
    guess = 1 / max(1, len(np.unique(labels))) if labels is not None else 0.0
    changes = straight.right is not None and mirrored.right is not None and straight.right > 1.5 * guess and (
        mirrored.right - guess < _LOST * (straight.right - guess))  # fmt: skip
    if times > _APART and (changes or labels is None):
        _told(found, "images have a direction (writing, symbols, organs, a fixed camera), which mirroring changes"
              + (": mirrored ones look like other classes" if changes else ""), use)  # fmt: skip


def advised(warnings: Sequence[str]) -> str:
    """The options that warnings ask for, each once, as they are typed.

    Args:
        warnings: Of ``examine_risks``.
    """
    return " ".join(dict.fromkeys(w.rpartition("; use ")[2] for w in warnings if "; use --" in w))


def _told(found: Findings, what: str, use: str) -> None:
    """Warns where images are mirrored, and only says so where they are not."""
    if use:
        found.warn(f"{what}; use {use}")
    else:
        found.say("direction", f"{what}; this preset mirrors nothing, so it may stay")


def _standard(thumbnails: UInt8[np.ndarray, "n 32 32"]) -> Float[np.ndarray, "n 1024"]:
    rows = thumbnails.reshape(len(thumbnails), -1).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    return rows / np.maximum(1e-6, np.linalg.norm(rows, axis=1, keepdims=True))


def answers(
    thumbnails: UInt8[np.ndarray, "n 32 32"],
    labels: Int[np.ndarray, " n"] | None,
    changed: UInt8[np.ndarray, "n 32 32"],
) -> Answers:
    """What the neighbours of changed images among unchanged ones say, each image itself and the nearest left out.

    Args:
        thumbnails: Unchanged.
        labels: Classes.
        changed: The same images, changed.
    """
    crowd = _spread(len(thumbnails), _CROWD)
    asked = crowd[_spread(len(crowd), _ASKED)]
    alike = _standard(changed[asked]) @ _standard(thumbnails[crowd]).T
    alike[asked[:, None] == crowd] = -2.0
    count = _count(len(crowd), None if labels is None else labels[crowd])
    nearest = np.argsort(-alike, axis=1)[:, count // 3 : count]
    away = np.sqrt(np.maximum(0.0, 2.0 - 2.0 * np.take_along_axis(alike, nearest, axis=1))).mean(axis=1)
    if labels is None:
        return Answers(float(np.median(away)), None)
    voted = np.array([np.bincount(votes).argmax() for votes in labels[crowd][nearest]])
    return Answers(float(np.median(away)), _balanced(voted, labels[asked]))


def _count(crowd: int, labels: Int[np.ndarray, " n"] | None) -> int:
    """Neighbours that are looked at: fewer where a class has no more images than that."""
    most = min(_SKIPPED + _VOTES, crowd // 4)
    return most if labels is None else min(most, max(3, int(np.median(np.unique(labels, return_counts=True)[1])) // 2))


def _spread(count: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def _balanced(said: np.ndarray, true: np.ndarray) -> float:
    return float(np.mean([(said[true == c] == c).mean() for c in np.unique(true)]))


def told_by_tones(tones: Float[np.ndarray, "n T"], labels: Int[np.ndarray, " n"]) -> tuple[float, float]:
    """Share of images whose class the brightness and contrast of their channels tell, and that of guessing.

    Args:
        tones: Mean and deviation of every channel.
        labels: Classes.
    """
    scaled = (tones - tones.mean(axis=0)) / np.maximum(1e-9, tones.std(axis=0))
    crowd = _spread(len(scaled), _CROWD)
    asked = crowd[_spread(len(crowd), _ASKED)]
    away = ((scaled[asked][:, None] - scaled[crowd][None]) ** 2).sum(axis=2)
    away[asked[:, None] == crowd] = np.inf
    count = _count(len(crowd), labels[crowd])
    nearest = np.argsort(away, axis=1)[:, count // 3 : count]
    said = np.array([np.bincount(votes).argmax() for votes in labels[crowd][nearest]])
    return _balanced(said, labels[asked]), 1 / len(np.unique(labels[asked]))


def _colours(
    found: Findings, sample: Sample, labels: np.ndarray | None, kind: str, cfg: ResolvedPretraining
) -> None:  # fmt: skip
    crops = getattr(cfg, "crops", None)
    varies = crops is not None and bool(crops.jitter or crops.solarise)
    channels, bits = sample.images.form
    measured = bits == 16 or channels not in (1, 3)

    def told(what: str) -> None:
        if varies:
            found.warn(f"{what}; use --crops.jitter 0 --crops.solarise 0")
        else:
            found.say("intensities", f"{what}; this method keeps them, training on labels with --augment.policy none")

    if measured:
        what = f"{bits} bits" if bits == 16 else f"{channels} channels"
        told(f"values are measured ({what}), and changes of brightness and contrast change the measurement")
    own = _classified(labels)
    if own is None or labels is None:
        return
    right, guess = told_by_tones(sample.tones[own], labels[own])
    found.say("colours", f"brightness and contrast of the channels alone tell the class of {100 * right:.0f} % "
              f"(guessing: {100 * guess:.0f} %)")  # fmt: skip
    if (right - guess) / max(1e-9, 1 - guess) > _TOLD and not measured:
        told("classes differ in brightness or colour, which changes of colour blur")


def _crops(
    found: Findings, thumbnails: np.ndarray, classes: Sequence[str], kind: str, cfg: ResolvedPretraining
) -> None:
    own = getattr(cfg, _group(cfg), None)
    scale = getattr(own, "global_scale", None) or getattr(own, "crop_scale", (1.0, 1.0))
    option = f"--{_group(cfg)}.{'global_scale' if hasattr(own, 'global_scale') else 'crop_scale'}"
    if scale == (1.0, 1.0):
        found.say("crops", "none")
        return
    zoom = scale[0] ** -0.5
    if kind == "regression":
        sizes = [name for name in classes if _SIZES.search(name.replace("_", " "))]
        what = f"{', '.join(sizes)} is measured in pixels" if sizes else "if the numbers are sizes or counts"
        found.warn(
            f"{what}: crops enlarge things up to {zoom:.1f} times and leave parts out; use {option} '[0.9, 1.0]'"
        )
    if not len(thumbnails):
        return
    missed = share_missed(thumbnails[_spread(len(thumbnails), _ASKED)], scale)
    area = f"of {100 * scale[0]:.3g} to {100 * scale[1]:.3g} % of the area"
    found.say("crops", f"{area}; {100 * missed:.0f} % of them hold less than a quarter of the image's detail")
    if missed > _MANY:
        found.warn(
            f"what images show lies in a small part of them, and {100 * missed:.0f} % of the crops mostly miss it; cut "
            f"images closer, or use {option} '[0.5, 1.0]'"
        )


def share_missed(thumbnails: UInt8[np.ndarray, "n 32 32"], scale: tuple[float, float]) -> float:
    """Share of random square crops with less than a quarter of an image's detail: its squared differences.

    Args:
        thumbnails: Of images that show something.
        scale: Least and most area of a crop.
    """
    values = thumbnails.astype(np.float32)
    detail = np.zeros_like(values)
    detail[:, 1:] += np.diff(values, axis=1) ** 2
    detail[:, :, 1:] += np.diff(values, axis=2) ** 2
    sums = np.pad(detail.cumsum(axis=1).cumsum(axis=2), ((0, 0), (1, 0), (1, 0)))
    draw = np.random.default_rng(0)
    shape = (len(values), _CROPS)
    sides = np.clip(np.rint(np.sqrt(draw.uniform(*scale, shape)) * SIDE), 1, SIDE).astype(int)
    top, left = (np.floor(draw.uniform(0, 1, shape) * (SIDE - sides + 1)).astype(int) for _ in range(2))
    n = np.arange(len(values))[:, None]
    inside = sums[n, top + sides, left + sides] - sums[n, top, left + sides]
    inside += sums[n, top, left] - sums[n, top + sides, left]
    return float((inside < _HELD * np.maximum(1e-6, sums[:, -1:, -1])).mean())
