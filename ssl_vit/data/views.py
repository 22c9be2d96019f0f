"""From decoded batches to what an objective reads; every random number of a step is drawn here, on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.configs import AugmentConfig, SupervisedConfig
from ssl_vit.data import augment, colour, mixing
from ssl_vit.data.decode import Unreadable
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loader import Batch
from ssl_vit.errors import UserError
from ssl_vit.masking import random_mask
from ssl_vit.randomness import Key, bits, make_key, uniform

View = Callable[[Batch, int], dict[str, Tensor]]
"""(batch, seed) -> what the objective reads."""


@dataclass(frozen=True)
class PixelScale:
    """How decoded pixels become network input; stored with the backbone."""

    mean: tuple[float, ...]
    """Per channel, of pixels scaled to [0, 1]."""
    std: tuple[float, ...]
    """Per channel, of pixels scaled to [0, 1]."""
    bits: int
    """Bits per channel of the files: [0, 1] is the whole 8- or 16-bit range."""

    def scaled(self, images: Tensor, dtype: torch.dtype) -> Float[Tensor, "B C H W"]:
        """Pixels as fractions of the full range."""
        return images.to(dtype) / (2**self.bits - 1)

    def normalise(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """Fractions to zero mean and unit deviation."""
        mean, std = (images.new_tensor(v)[:, None, None] for v in (self.mean, self.std))
        return (images - mean) / std

    def restore(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """The inverse of ``normalise``."""
        mean, std = (images.new_tensor(v)[:, None, None] for v in (self.mean, self.std))
        return images * std + mean


def measure_scale(images: ImageSet, at_most: int = 2000) -> PixelScale:
    """Mean and deviation of every channel over up to 2,000 evenly spaced training images.

    Raises:
        UserError: When none of them can be read.
    """
    total = np.zeros(images.form.channels)
    square = np.zeros_like(total)
    count = 0
    reasons: list[str] = []
    top = float(2**images.form.bits - 1)
    for i in np.unique(np.linspace(0, len(images) - 1, min(at_most, len(images))).astype(int)):
        try:
            pixels, _ = images.read(int(i))
        except Unreadable as error:
            reasons.append(f"{images.where(int(i))} ({error})")
            continue
        values = pixels.reshape(len(pixels), -1) / top
        total += values.sum(axis=1)
        square += (values**2).sum(axis=1)
        count += values.shape[1]
    if not count:
        raise UserError(f"no image in {images.name} can be read: {'; '.join(reasons[:3])}")
    mean = total / count
    std = np.sqrt(np.maximum(square / count - mean**2, 0.0))
    std[std < 1e-6] = 1.0  # a constant channel stays constant instead of becoming noise
    return PixelScale(tuple(mean.tolist()), tuple(std.tolist()), images.form.bits)


def _sample_key(seed: int, purpose: str, batch: Batch) -> Key:
    return make_key(seed, purpose, batch.epoch, batch.index)


def _fits(images: Tensor, size: int) -> bool:
    return tuple(images.shape[2:]) == (size, size)


def train_geometry(
    batch: Batch, seed: int, scale: PixelScale, cfg: AugmentConfig, size: int, dtype: torch.dtype
) -> Float[Tensor, "B C S S"]:
    """Random crop, resize and flip as the config says; pixels in [0, 1]."""
    assert cfg.crop_scale is not None
    images = scale.scaled(batch.images, dtype)
    flip = uniform(_sample_key(seed, "flip", batch), 1)[:, 0] < 0.5 if cfg.flip else None
    if cfg.crop_scale == (1.0, 1.0):
        if batch.native and _fits(images, size):
            return images if flip is None else torch.where(flip[:, None, None, None], images.flip(3), images)
        boxes = augment.centre_crop(batch.sizes)
    else:
        key = _sample_key(seed, "crop", batch)
        boxes = augment.random_resized_crop(key, batch.sizes, cfg.crop_scale, cfg.crop_ratio)
    canvas = (images.shape[2], images.shape[3])
    return augment.crop_resize(images, augment.to_canvas(boxes, batch.sizes, canvas), size, flip).clamp(0.0, 1.0)


def eval_images(batch: Batch, scale: PixelScale, size: int, dtype: torch.dtype) -> Float[Tensor, "B C S S"]:
    """The deterministic view of evaluation, normalised.

    The central square is resized to the model's input: all of the short side up to 64 pixels of input or where images
    are no larger than the input, else 7/8 of it (resize to 256, crop 224).
    """
    images = scale.scaled(batch.images, dtype)
    if not (batch.native and _fits(images, size)):
        share = torch.where((batch.sizes.amin(dim=1) > size) & (size > 64), 0.875, 1.0)
        boxes = augment.centre_crop(batch.sizes, share)
        canvas = (images.shape[2], images.shape[3])
        images = augment.crop_resize(images, augment.to_canvas(boxes, batch.sizes, canvas), size).clamp(0.0, 1.0)
    return scale.normalise(images)


def mae_view(scale: PixelScale, cfg: AugmentConfig, *, size: int, patches: int, kept: int, dtype: torch.dtype) -> View:
    """Images and their masks for MAE.

    Args:
        scale: Pixel statistics.
        cfg: Resolved augmentation.
        size: Side of the model's input in pixels.
        patches: N, patches per image.
        kept: K, visible patches.
        dtype: Arithmetic of the images.
    """

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        images = train_geometry(batch, seed, scale, cfg, size, dtype)
        if cfg.colour:
            images = colour.three_augment(_sample_key(seed, "colour", batch), images, bits=scale.bits)
        mask = random_mask(bits(_sample_key(seed, "mask", batch), patches), kept)
        return {"images": scale.normalise(images), "keep_ids": mask.keep_ids, "mask_ids": mask.mask_ids}

    return view


def probe_view(scale: PixelScale, cfg: AugmentConfig, *, size: int, dtype: torch.dtype) -> View:
    """Augmented images and their labels, for a head on a frozen backbone.

    Args:
        scale: Pixel statistics.
        cfg: Resolved augmentation.
        size: Side of the model's input in pixels.
        dtype: Arithmetic of the images.
    """

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        assert batch.labels is not None
        images = train_geometry(batch, seed, scale, cfg, size, dtype)
        if cfg.colour:
            images = colour.three_augment(_sample_key(seed, "colour", batch), images, bits=scale.bits)
        return {"images": scale.normalise(images), "labels": batch.labels}

    return view


def drop_path_factors(key: Key, depth: int, rate: float) -> Float[Tensor, "B L 2"]:
    """Stochastic depth (Huang et al. 2016): 0 or 1 / keep per sample, block and residual branch.

    The rate grows linearly from 0 at the first block to ``rate`` at the last.
    """
    rates = torch.linspace(0.0, rate, depth, device=key.low.device)[None, :, None]
    u = uniform(key, 2 * depth).view(-1, depth, 2)
    return (u >= rates) / (1.0 - rates)


def supervised_view(
    scale: PixelScale,
    cfg: AugmentConfig,
    loss: SupervisedConfig,
    *,
    size: int,
    depth: int,
    classes: int,
    dtype: torch.dtype,
) -> View:
    """Images, soft targets and stochastic depth for training on labels.

    Args:
        scale: Pixel statistics.
        cfg: Resolved augmentation.
        loss: Resolved smoothing, mixing and drop-path options.
        size: Side of the model's input in pixels.
        depth: Blocks of the backbone.
        classes: Number of classes.
        dtype: Arithmetic of the images.
    """
    mixup, cutmix = loss.mixup or 0.0, loss.cutmix or 0.0

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        assert batch.labels is not None
        images = train_geometry(batch, seed, scale, cfg, size, dtype)
        if cfg.colour:
            images = colour.three_augment(_sample_key(seed, "colour", batch), images, bits=scale.bits)
        images = scale.normalise(images)
        targets = mixing.smooth_targets(batch.labels, classes, loss.label_smoothing, dtype)
        if mixup or cutmix:
            key = _sample_key(seed, "mix", batch)
            images, targets = mixing.mix(key, images, targets, mixup=mixup, cutmix=cutmix)
        inputs = {"images": images, "targets": targets}
        if loss.drop_path:
            inputs["drop"] = drop_path_factors(_sample_key(seed, "drop-path", batch), depth, loss.drop_path)
        return inputs

    return view
