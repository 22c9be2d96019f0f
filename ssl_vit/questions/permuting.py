"""Images permuted by one fixed permutation, the same for training and test images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from ssl_vit.core.randomness import permutation
from ssl_vit.data.decoding.formats import Pixels
from ssl_vit.data.images import ImageSet, Sizes, reads_here
from ssl_vit.questions.scope import Images


def order_of(kind: Images, side: int, patch: int, seed: int = 0) -> Int[np.ndarray, " P"]:
    """From where every pixel of a permuted square image is taken, row-major.

    Args:
        kind: ``patches``: patches change places, whole; ``pixels``: pixels change places inside every patch, alike;
            ``all``: all pixels do; ``whole``: none.
        side: Of the image in pixels, in whole patches; P = side * side.
        patch: Side of a patch in pixels.
        seed: Of the permutation.
    """
    place = np.arange(side * side).reshape(side, side)
    if kind == "whole":
        return place.ravel()
    if kind == "all":
        return _moving(seed, "question-all", side * side)
    grid = side // patch
    cut = place.reshape(grid, patch, grid, patch).transpose(0, 2, 1, 3).reshape(grid * grid, patch * patch)
    if kind == "patches":
        cut = cut[_moving(seed, "question-patches", grid * grid)]
    else:
        cut = cut[:, _moving(seed, "question-pixels", patch * patch)]
    return cut.reshape(grid, grid, patch, patch).transpose(0, 2, 1, 3).ravel()


def _moving(seed: int, purpose: str, count: int) -> Int[np.ndarray, " n"]:
    """A permutation that leaves nothing in its place, as one of three does; of a single thing, the only one.

    Where a patch has four pixels, one of 24 permutations would change nothing at all.
    """
    for i in range(1000):
        found = permutation(seed, purpose, i, n=count).numpy()
        if count < 2 or (found != np.arange(count)).all():
            return found
    raise AssertionError("a thousand permutations in a row left something in its place")


@dataclass(frozen=True)
class PermutedRows:
    """Images of a set, squeezed onto a square, with their pixels in another order."""

    images: ImageSet
    order: Int[np.ndarray, " P"]
    read_here: ClassVar[bool] = False

    def __len__(self) -> int:
        """Number of images."""
        return len(self.images)

    def raw(self, row: int) -> Pixels:
        """Pixels [C, H, W]."""
        pixels, _ = self.images.read(row)
        channels, *shape = pixels.shape
        return np.ascontiguousarray(pixels.reshape(channels, -1)[:, self.order].reshape(channels, *shape))

    def where(self, row: int) -> str:
        """The image's own name."""
        return self.images.where(row)


@dataclass(frozen=True)
class _ReadHere(PermutedRows):
    """The same of an object that only this process has."""

    read_here: ClassVar[bool] = True


def permuted(images: ImageSet, kind: Images, side: int, patch: int, seed: int = 0) -> ImageSet:
    """A set whose images are squares of ``side`` pixels, permuted.

    Args:
        images: With their labels, if they have any.
        kind: As ``order_of``; ``whole`` makes them squares alone.
        side: In pixels.
        patch: Side of a patch in pixels.
        seed: Of the permutation.
    """
    if kind == "whole" and images.sizes.common == (side, side):
        return images
    square = images.on_canvas(side, side)
    rows = (_ReadHere if reads_here(images.rows) else PermutedRows)(square, order_of(kind, side, patch, seed))
    return replace(
        images, rows=rows, ids=np.arange(len(images)), canvas=None, sizes=Sizes((side, side), side), blocks=None,
        source=f"{images.fingerprint}-{kind}-{side}-{patch}-{seed}", pieces=(), splits=frozenset(),
    )  # fmt: skip
