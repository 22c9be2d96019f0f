"""Random crops that loader processes cut from the files themselves: at native scale, and nothing is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from PIL import Image

from ssl_vit.configs import LoadingConfig, ResolvedAugment
from ssl_vit.core.errors import UserError
from ssl_vit.core.randomness import make_key
from ssl_vit.data.boxes import random_resized_crop
from ssl_vit.data.decoding import current
from ssl_vit.data.decoding.decode import decode_crop, open_image
from ssl_vit.data.decoding.formats import Header, Pixels, Raw, Unreadable
from ssl_vit.data.decoding.resize import Interpolation
from ssl_vit.data.images import ArrayRows, ImageSet

_AT_ONCE = 32
"""Files that are held in memory together."""
_LARGE = 64 * 10**9
"""Bytes of decoded images above which a set is not expected to be kept anywhere."""


@dataclass(frozen=True)
class FileCrops:
    """Random resized crops as ``random_resized_crop`` draws them."""

    side: int
    """Of the result, in pixels."""
    scale: tuple[float, float]
    ratio: tuple[float, float]
    interpolation: Interpolation

    def read(
        self, images: ImageSet, index: list[int], epoch: list[int], seed: int
    ) -> Iterator[tuple[Pixels, tuple[int, int]] | Unreadable]:
        """One crop [C, side, side] of each image in this visit, with its height and width, or why it cannot be read."""
        for first in range(0, len(index), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            opened: list[tuple[Raw, tuple[Header, Image.Image | None]] | Unreadable] = []
            for i in index[part]:
                try:
                    raw = images.raw(i)
                    opened.append((raw, open_image(raw)))
                except Unreadable as error:
                    opened.append(error)
            sizes = [(1, 1) if isinstance(each, Unreadable) else each[1][0][2:] for each in opened]
            key = make_key(seed, "crop", torch.tensor(epoch[part]), torch.tensor(index[part]))
            boxes = random_resized_crop(key, torch.tensor(sizes, dtype=torch.float32), self.scale, self.ratio)
            for i, each, (top, left, height, width) in zip(index[part], opened, boxes.int().tolist(), strict=True):
                try:
                    if isinstance(each, Unreadable):
                        raise each
                    current.begin(images.where, i)
                    crop = decode_crop(
                        *each, images.form, (top, left, height, width), self.side, self.interpolation, images.most
                    )
                    yield crop, (self.side, self.side)
                except Unreadable as error:
                    yield error


def file_crops(loading: LoadingConfig, images: ImageSet, cfg: ResolvedAugment, side: int) -> FileCrops | None:
    """Decides where random crops are cut: from files, or (None) from decoded images on the device.

    Left open, files are chosen for sets that would fill more than 64 GB on their canvas, on every machine alike. Where
    there are no files or no crops, or they were to be kept, a UserError says so. ``side`` is the model's in pixels.
    """
    asked, kept = loading.crop_from, loading.cache in ("ram", "device")
    reasons = {
        "the images are in memory already": isinstance(images.rows, ArrayRows),
        "--data.window cuts images already": images.window is not None,
        "--augment.crop pad takes images whole": cfg.crop == "pad",  # its crop_scale is [1, 1] as well
        "--augment.crop_scale takes central squares whole": cfg.crop_scale == (1.0, 1.0),
    }
    against = [reason for reason, holds in reasons.items() if holds]
    if asked == "file" and against:
        raise UserError(f"--data.crop_from file: {against[0]}; leave it out")
    if asked == "file" and kept:
        raise UserError(f"--data.crop_from file keeps nothing, and --data.cache {loading.cache} keeps images whole; "
                        "give one or the other")  # fmt: skip
    large = len(images) * images.form.bytes_of(images.shape) > _LARGE
    if against or asked == "canvas" or (asked is None and not large):
        return None
    if kept:  # not a reason to decide otherwise: how images are kept must not change their pixels
        raise UserError(
            f"so large a set is cut from its files unless --data.crop_from canvas is given, which --data.cache "
            f"{loading.cache} needs; give both, or leave --data.cache out"
        )
    return FileCrops(side, cfg.crop_scale, cfg.crop_ratio, cfg.interpolation)
