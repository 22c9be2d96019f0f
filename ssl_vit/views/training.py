"""From decoded batches to what an objective reads; every random number of a step is drawn here.

The few numbers of an image (its crop, its colours) are drawn on the host and sent: on a GPU each of some hundred small
operations would be a kernel of its own. What needs a number per patch or pixel draws it on the device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ssl_vit.configs import ResolvedAugment
from ssl_vit.core.randomness import Key, make_key, uniform
from ssl_vit.data.boxes import centre_crop, random_resized_crop, to_canvas, whole_pixels
from ssl_vit.data.constants import constant, sent
from ssl_vit.data.loading.loader import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.views import augment, colour, randaugment
from ssl_vit.views.crop_colours import jitter_notice, jitter_some

View = Callable[[Batch, int], dict[str, Tensor]]
"""(batch, seed) -> what the objective reads."""


_AT_ONCE = 2**18
"""Numbers in the images that a CPU works on together: few enough to stay in its cache from step to step."""


def host_key(seed: int, purpose: str, batch: Batch) -> Key:
    """One stream of random numbers for every sample of a batch, on the host.

    Args:
        seed: Of the run.
        purpose: What is drawn: streams of different purposes share nothing.
        batch: Whose images and epochs name the streams.
    """
    return make_key(seed, purpose, batch.epoch, batch.index)


def sample_key(seed: int, purpose: str, batch: Batch) -> Key:
    """As ``host_key``, on the device of the images: for a number per patch or pixel."""
    return Key(*sent(torch.stack(host_key(seed, purpose, batch)), batch.images.device))


def geometry(
    batch: Batch, seed: int, scale: PixelScale, cfg: ResolvedAugment, size: int, dtype: torch.dtype
) -> Callable[[slice], Float[Tensor, "B C S S"]]:
    """What crops, resizes and flips some images of the batch to [0, 1]; all that is random is drawn here, for all."""
    canvas, device = batch.images.shape[2:], batch.images.device
    flips = uniform(host_key(seed, "flip", batch), 1)[:, 0] < 0.5 if cfg.flip else None
    shifts = augment.random_shift(host_key(seed, "crop", batch), size) if cfg.crop == "pad" else None
    boxes, drawn = None, shifts is None and cfg.crop_scale != (1.0, 1.0) and not batch.cropped
    if drawn:
        boxes = random_resized_crop(host_key(seed, "crop", batch), batch.sizes, cfg.crop_scale, cfg.crop_ratio)
        boxes = whole_pixels(to_canvas(boxes, batch.sizes, canvas), canvas)
    elif not (batch.native and canvas == (size, size)):
        boxes = to_canvas(centre_crop(batch.sizes), batch.sizes, canvas)
    flips, shifts, boxes = (None if each is None else sent(each, device) for each in (flips, shifts, boxes))
    by_bytes = drawn and dtype == torch.float32 and augment.crops_in_bytes(batch.images, size)

    def cut(part: slice) -> Tensor:
        images, (flip, shift) = batch.images[part], (None if each is None else each[part] for each in (flips, shifts))
        if by_bytes and boxes is not None:
            return scale.scaled(augment.crop_bytes(images, boxes[part], size, flip, cfg.interpolation), dtype)
        if boxes is None:
            if shift is not None:
                images = augment.pad_crop(images, shift, flip)
            elif flip is not None:
                images = torch.where(flip[:, None, None, None], images.flip(3), images)
            return scale.scaled(images, dtype)
        mirrored, images = flip if shift is None else None, scale.scaled(images, dtype)
        images = augment.crop_resize(images, boxes[part], size, mirrored, cfg.interpolation, whole=drawn).clamp_(0, 1)
        return images if shift is None else augment.pad_crop(images, shift, flip)

    return cut


def train_images(
    batch: Batch, seed: int, scale: PixelScale, cfg: ResolvedAugment, size: int, dtype: torch.dtype
) -> Float[Tensor, "B C S S"]:
    """Training images, cropped, varied as the policy says, normalised; where nothing varies a CPU works in pieces."""
    cut, count = geometry(batch, seed, scale, cfg, size, dtype), len(batch.index)
    if cfg.policy == "none" and batch.images.device.type == "cpu":
        images = torch.empty((count, batch.images.shape[1], size, size), dtype=dtype)
        at_once = max(1, _AT_ONCE // images[0].numel())
        for part in (slice(start, start + at_once) for start in range(0, count, at_once)):
            scale.normalise(cut(part), out=images[part])
        return images
    images, key = cut(slice(None)), host_key(seed, "colour", batch)
    if cfg.policy == "3-augment":
        images = colour.three_augment(key, images, bits=scale.bits)
    elif cfg.policy == "jitter":
        images = jitter_some(key, images, bits=scale.bits)
    elif cfg.policy == "randaugment":
        fill = constant(scale.mean, images.dtype, images.device)
        images = randaugment.rand_augment(key, images, magnitude=cfg.magnitude, fill=fill, bits=scale.bits)
    return scale.normalise(images)


_NOTICES = {"3-augment": colour.notice, "jitter": jitter_notice, "randaugment": randaugment.notice}


def left_out(cfg: ResolvedAugment, channels: int, bits: int) -> tuple[str, ...]:
    """A note for the user of what the policy leaves out because such images make no sense of it; else nothing."""
    told = _NOTICES[cfg.policy](channels, bits) if cfg.policy in _NOTICES else ""
    return (f"note: {told}",) if told else ()


def drop_path_factors(key: Key, rates: Float[Tensor, "*L"]) -> Float[Tensor, " B *L"]:
    """Stochastic depth (Huang et al. 2016): 0 or 1 / keep for every sample and residual branch.

    Args:
        key: One stream per sample.
        rates: Of every place of a network (``Backbone.drop_rates``), on the host.
    """
    chances = constant(tuple(rates.flatten().tolist()), rates.dtype, key.low.device)
    u = uniform(key, rates.numel())
    return ((u >= chances) / (1.0 - chances)).unflatten(1, rates.shape)
