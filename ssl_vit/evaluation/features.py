"""One vector per image, extracted once and reused by every protocol that reads features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ssl_vit.configs.presets import TINY
from ssl_vit.core.dist import gather_rows, rank_and_world
from ssl_vit.core.errors import UserError
from ssl_vit.data.boxes import centre_crop, to_canvas
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.loader import Batch, UnreadableLog, eval_batches
from ssl_vit.data.scale import PixelScale
from ssl_vit.models.backbone import Backbone, Pool
from ssl_vit.training.metering import out_of_memory
from ssl_vit.views.augment import crop_resize
from ssl_vit.views.evaluation import eval_images

RAW_SIDE = 32
"""Raw pixels are compared at no more than this side, in pixels, so that k-NN on them stays affordable."""
_GPU_PIXELS = 2**24
"""Input pixels in a GPU's forward pass, unless the number of images is given: 334 images of 224 x 224."""
_WORTH_COMPILING = 500_000
"""Images from which on a GPU saves more than the minute that compiling takes."""

Extractor = Callable[[Batch], Float[Tensor, "B D"]]


@dataclass(frozen=True)
class Features:
    """Vectors of the readable images of a set, in its order, the same on every process."""

    x: Float[np.ndarray, "n D"]
    labels: Int[np.ndarray, " n"] | Float[np.ndarray, "n K"]
    index: Int[np.ndarray, " n"]
    """Positions in the set."""
    left_out: tuple[str, ...]
    """Unreadable images, which are not in here."""

    def subset(self, positions: np.ndarray) -> Features:
        """The vectors whose position in the set is among these."""
        chosen = np.isin(self.index, positions)
        return Features(self.x[chosen], self.labels[chosen], self.index[chosen], self.left_out)


def backbone_extractor(
    backbone: Backbone,
    scale: PixelScale,
    *,
    size: int,
    pool: Pool,
    device: torch.device,
    bf16: bool = False,
    compiled: bool = False,
) -> Extractor:
    """Pooled features of a backbone in inference mode, at an input of ``size`` pixels.

    With bf16 matrices are multiplied so; pixels are prepared, and features returned, in single precision.
    """
    backbone = backbone.to(device).eval()
    if device.type == "cuda":
        backbone.keep_channels_together()

    def forward(images: Tensor) -> Tensor:
        return backbone.forward_pooled(images, pool=pool)

    run = torch.compile(forward) if compiled else forward

    def extract(batch: Batch) -> Tensor:
        with torch.inference_mode():
            images = eval_images(batch, scale, size, torch.float32)
            if compiled and len(images) > 1:
                torch._dynamo.mark_dynamic(images, 0)  # compiled once for batches of all sizes
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                return run(images).float()

    return extract


def pays_to_compile(asked: bool | None, images: int, device: torch.device) -> bool:
    """Whether a network is compiled before features are extracted; ``--eval.compile`` (``asked``) may decide."""
    return device.type == "cuda" and images > _WORTH_COMPILING if asked is None else asked


def images_at_once(asked: int | None, size: int, device: torch.device) -> int:
    """Images of ``size`` pixels per process and forward pass, to start with; ``--eval.batch_size`` may decide.

    A GPU gets many; a CPU so few that what is in work stays in its cache (ViT-S/16 at 224 px: 16 images at a time are
    a third faster than 32), but many tiny ones.
    """
    if asked is not None:
        return asked
    if device.type == "cuda":
        return min(4096, max(256, _GPU_PIXELS // size**2))
    return 256 if size <= TINY or device.type != "cpu" else min(256, 16 * torch.get_num_threads())


def candidate_pools(backbone: Backbone) -> tuple[Pool, dict[str, slice]]:
    """What to extract in one pass, and which of its columns are which pooling.

    The columns are the class tokens of the last four blocks, then the mean of patches: every candidate is a slice.
    """
    if not backbone.class_token:
        return "mean", {"mean": slice(None)}
    width, all_cls = backbone.embed_dim, backbone.pooled_width("cls4")
    return "cls4+mean", {
        "cls": slice(all_cls - width, all_cls),
        "mean": slice(all_cls, all_cls + width),
        "cls4": slice(0, all_cls),
        "cls+mean": slice(all_cls - width, all_cls + width),
    }


def pixel_extractor(scale: PixelScale, *, size: int) -> Extractor:
    """Normalised pixels of the evaluation's own crop, at up to 32 x 32: the baseline that costs nothing."""
    side = min(size, RAW_SIDE)

    def extract(batch: Batch) -> Tensor:
        images = eval_images(batch, scale, size, torch.float32)
        if side != size:
            whole = torch.full((len(images), 2), float(size), device=images.device)
            images = crop_resize(images, to_canvas(centre_crop(whole), whole, (size, size)), side)
        return images.flatten(1)

    return extract


def extract_features(
    extract: Extractor, images: ImageSet, *, batch_size: int, device: torch.device, may_be_constant: bool = False
) -> Features:
    """Features of every readable image exactly once, on any number of processes.

    Args:
        extract: Batch to vectors.
        images: A labelled set.
        batch_size: Images per process and forward pass; halved as often as memory does not suffice.
        device: Where to compute.
        may_be_constant: Whether all images may have the same vector: answers may, features may not.

    Raises:
        UserError: When features are not finite, or do not differ at all between images, or when there is too little
            memory for one image.
    """
    labels = images.truth
    log = UnreadableLog(images)
    rows, index, at_once = [], [torch.empty(0, dtype=torch.int64)], batch_size
    for batch in eval_batches(images, batch_size, device, log, stops=rank_and_world()[1] == 1):
        found, at_once = _within_memory(extract, batch, at_once)
        rows += found
        index.append(batch.index)
    log.gather()
    # A process without images must know how wide the others' features are.
    width = int(gather_rows(torch.tensor([rows[0].shape[1] if rows else 0], device=device)).max())
    x = gather_rows(torch.cat(rows) if rows else torch.empty((0, width), device=device)).cpu().numpy()
    where = gather_rows(torch.cat(index).to(device)).cpu().numpy()
    if not len(x):
        raise UserError(f"no image in {images.name} can be read")
    if not np.isfinite(x).all():
        raise UserError("features are not finite: the backbone's weights or its pixel statistics are damaged")
    if not may_be_constant and len(x) > 1 and float(np.ptp(x, axis=0).max()) == 0.0:
        raise UserError(
            f"all {len(x):,} images have the same features: they are one and the same image, or the backbone has "
            "collapsed or its weights are empty"
        )
    order = np.argsort(where)  # several processes take turns
    return Features(x[order], labels[where[order]], where[order], tuple(log.listing()))


def answers_to(
    network: Callable[[Tensor], Tensor],
    images: ImageSet,
    scale: PixelScale,
    *,
    size: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Features:
    """What a network of weights ``dtype`` (on the device, in evaluation mode) says of all readable images, in order."""

    def extract(batch: Batch) -> Tensor:
        with torch.inference_mode():
            return network(eval_images(batch, scale, size, dtype))

    at_once = images_at_once(None, size, device)
    return extract_features(extract, images, batch_size=at_once, device=device, may_be_constant=True)


def _within_memory(extract: Extractor, batch: Batch, at_once: int) -> tuple[list[Float[Tensor, "b D"]], int]:
    """Vectors of a batch in parts that fit into memory, and how many images that is."""
    rows: list[Tensor] = []
    done, images = 0, len(batch.index)
    each = {name: getattr(batch, name) for name in ("images", "index", "epoch", "sizes", "labels")}
    while done < images:
        chosen = slice(done, done + at_once)
        part = replace(batch, **{name: None if value is None else value[chosen] for name, value in each.items()})
        try:
            rows.append(extract(part).float())
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            if len(part.index) == 1:
                raise UserError("out of memory with a single image: no features can be extracted here") from None
            at_once = len(part.index) // 2
            continue  # the failed attempt's tensors go with the error
        done += len(part.index)
    return rows, at_once
