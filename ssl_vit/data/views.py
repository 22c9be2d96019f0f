"""From decoded batches to what an objective reads; every random number of a step is drawn here, on the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.configs import AugmentConfig, SupervisedConfig
from ssl_vit.data import augment, colour, mixing
from ssl_vit.data.constants import constant
from ssl_vit.data.erasing import erase
from ssl_vit.data.formats import Unreadable
from ssl_vit.data.images import ImageSet, Sizes
from ssl_vit.data.loader import Batch
from ssl_vit.data.randaugment import rand_augment
from ssl_vit.data.targets import Kind, TargetScale
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
        """Pixels as fractions of the full range, in memory of their own, channels apart."""
        return images.to(dtype, copy=True, memory_format=torch.contiguous_format).div_(2**self.bits - 1)

    def normalise(self, images: Float[Tensor, "B C H W"], out: Tensor | None = None) -> Float[Tensor, "B C H W"]:
        """Fractions to zero mean and unit deviation, written to ``out`` where it is given."""
        mean, std = (constant(v, images.dtype, images.device)[:, None, None] for v in (self.mean, self.std))
        return torch.sub(images, mean, out=out).div_(std)

    def restore(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """The inverse of ``normalise``."""
        mean, std = (constant(v, images.dtype, images.device)[:, None, None] for v in (self.mean, self.std))
        return images * std + mean


_SILENT = 0.01  # deviation in grey levels below which a channel counts as constant


def measure_scale(images: ImageSet, at_most: int = 2000) -> PixelScale:
    """Mean and deviation of every channel over up to 2,000 evenly spaced training images, taken whole.

    Sums are whole numbers and therefore exact: every process of a run comes to the same last bit.

    Raises:
        UserError: When none of them can be read.
    """
    if images.window is not None:  # an image is decoded whole for its window anyway
        images = replace(images, window=None, sizes=Sizes(None, images.sizes.short_side))
    total = np.zeros(images.form.channels, dtype=object)  # Python's integers, which have no limit
    square = np.zeros_like(total)
    count = 0
    reasons: list[str] = []
    for i in np.unique(np.linspace(0, len(images) - 1, min(at_most, len(images))).astype(int)):
        try:
            pixels, _ = images.read(int(i))
        except Unreadable as error:
            reasons.append(f"{images.where(int(i))} ({error})")
            continue
        total += np.einsum("chw->c", pixels, dtype=np.uint64).astype(object)
        square += np.einsum("chw,chw->c", pixels, pixels, dtype=np.uint64).astype(object)
        count += pixels[0].size
    if not count:
        raise UserError(f"no image in {images.name} can be read: {'; '.join(reasons[:3])}")
    top = 2**images.form.bits - 1
    mean = [int(t) / (count * top) for t in total]
    levels = [math.sqrt(count * int(s) - int(t) ** 2) / count for s, t in zip(square, total, strict=True)]
    # A constant channel stays constant instead of becoming noise.
    std = [deviation / top if deviation >= _SILENT else 1.0 for deviation in levels]
    return PixelScale(tuple(mean), tuple(std), images.form.bits)


_AT_ONCE = 2**18
"""Numbers in the images that a CPU works on together: few enough to stay in its cache from step to step."""


def _sample_key(seed: int, purpose: str, batch: Batch) -> Key:
    return make_key(seed, purpose, batch.epoch, batch.index)


def _host_key(seed: int, purpose: str, batch: Batch) -> Key:
    index, epoch = batch.names()
    return make_key(seed, purpose, epoch, index)


def _fits(images: Tensor, size: int) -> bool:
    return tuple(images.shape[2:]) == (size, size)


def _geometry(
    batch: Batch, seed: int, scale: PixelScale, cfg: AugmentConfig, size: int, dtype: torch.dtype
) -> Callable[[slice], Float[Tensor, "B C S S"]]:
    """What crops, resizes and flips some images of the batch; all that is random is drawn here, for all of them."""
    assert cfg.crop_scale is not None
    canvas = (batch.images.shape[2], batch.images.shape[3])
    flips = uniform(_sample_key(seed, "flip", batch), 1)[:, 0] < 0.5 if cfg.flip else None
    shifts = augment.random_shift(_sample_key(seed, "crop", batch), size) if cfg.crop == "pad" else None
    boxes, drawn = None, shifts is None and cfg.crop_scale != (1.0, 1.0) and not batch.cropped
    if drawn:
        key = _sample_key(seed, "crop", batch)
        boxes = augment.random_resized_crop(key, batch.sizes, cfg.crop_scale, cfg.crop_ratio)
        boxes = augment.whole_pixels(augment.to_canvas(boxes, batch.sizes, canvas), canvas)
    elif not (batch.native and _fits(batch.images, size)):
        boxes = augment.to_canvas(augment.centre_crop(batch.sizes), batch.sizes, canvas)
    by_bytes = drawn and dtype == torch.float32 and augment.crops_in_bytes(batch.images, size)
    padded = augment.pad_crop(batch.images, shifts, flips) if shifts is not None and boxes is None else None

    def cut(part: slice) -> Tensor:
        if padded is not None:
            return scale.scaled(padded[part], dtype)
        images, flip = batch.images[part], None if flips is None else flips[part]
        if by_bytes and boxes is not None:
            return scale.scaled(augment.crop_bytes(images, boxes[part], size, flip, cfg.interpolation), dtype)
        if boxes is None and flip is not None:
            images = augment.mirror(images, flip)
        images = scale.scaled(images, dtype)
        if boxes is None:
            return images
        mirrored = None if shifts is not None else flip
        images = augment.crop_resize(images, boxes[part], size, mirrored, cfg.interpolation, whole=drawn).clamp_(0, 1)
        return images if shifts is None else augment.pad_crop(images, shifts[part], flip)

    return cut


def train_geometry(
    batch: Batch, seed: int, scale: PixelScale, cfg: AugmentConfig, size: int, dtype: torch.dtype
) -> Float[Tensor, "B C S S"]:
    """Random crop, resize and flip as the config says; pixels in [0, 1]."""
    return _geometry(batch, seed, scale, cfg, size, dtype)(slice(None))


def train_images(
    batch: Batch, seed: int, scale: PixelScale, cfg: AugmentConfig, size: int, dtype: torch.dtype
) -> Float[Tensor, "B C S S"]:
    """Training images, cropped, varied and normalised; where nothing is varied a CPU works in pieces."""
    cut, count = _geometry(batch, seed, scale, cfg, size, dtype), len(batch.index)
    if cfg.policy in ("3-augment", "randaugment") or batch.images.device.type != "cpu":
        return scale.normalise(vary(batch, seed, cut(slice(None)), scale, cfg))
    channels = batch.images.shape[1]
    images = torch.empty((count, channels, size, size), dtype=dtype)
    at_once = max(1, _AT_ONCE // images[0].numel())
    for start in range(0, count, at_once):
        part = slice(start, start + at_once)
        scale.normalise(cut(part), out=images[part])
    return images


def vary(
    batch: Batch, seed: int, images: Float[Tensor, "B C H W"], scale: PixelScale, cfg: AugmentConfig
) -> Float[Tensor, "B C H W"]:
    """Intensity, colour and further geometry as the config's policy says; pixels in [0, 1]."""
    key = _sample_key(seed, "colour", batch)
    if cfg.policy == "3-augment":
        return colour.three_augment(key, images, bits=scale.bits)
    if cfg.policy == "randaugment":
        fill = constant(scale.mean, images.dtype, images.device)
        return rand_augment(
            key, images, magnitude=cfg.magnitude, fill=fill, bits=scale.bits, host=_host_key(seed, "colour", batch)
        )
    return images


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
        images = train_images(batch, seed, scale, cfg, size, dtype)
        mask = random_mask(bits(_sample_key(seed, "mask", batch), patches), kept)
        return {"images": images, "keep_ids": mask.keep_ids, "mask_ids": mask.mask_ids}

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
        return {"images": train_images(batch, seed, scale, cfg, size, dtype), "labels": batch.labels}

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
    kind: Kind = "class",
    target_scale: TargetScale | None = None,
    dtype: torch.dtype,
) -> View:
    """Images, soft targets and stochastic depth for training on labels.

    Args:
        scale: Pixel statistics.
        cfg: Resolved augmentation.
        loss: Resolved smoothing, mixing and drop-path options.
        size: Side of the model's input in pixels.
        depth: Blocks of the backbone.
        classes: Number of classes, labels or numbers to predict.
        kind: What labels are.
        target_scale: What numbers are standardised by; needed for regression alone.
        dtype: Arithmetic of the images.
    """
    mixup, cutmix = loss.mixup or 0.0, loss.cutmix or 0.0

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        assert batch.labels is not None
        images = train_images(batch, seed, scale, cfg, size, dtype)
        if cfg.erasing:
            images = erase(_sample_key(seed, "erasing", batch), images, cfg.erasing, _host_key(seed, "erasing", batch))
        targets = mixing.make_targets(
            batch.labels, kind, classes=classes, smoothing=loss.label_smoothing, scale=target_scale, dtype=dtype
        )
        if mixup or cutmix:
            key = _sample_key(seed, "mix", batch)
            images, targets = mixing.mix(key, images, targets, mixup=mixup, cutmix=cutmix)
        inputs = {"images": images, "targets": targets}
        if loss.drop_path:
            inputs["drop"] = drop_path_factors(_sample_key(seed, "drop-path", batch), depth, loss.drop_path)
        return inputs

    return view
