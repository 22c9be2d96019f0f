"""A grid of images as they are decoded, and as the network will see them in some visits."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.loading.loader import some_images
from ssl_vit.doctor.following import Followed
from ssl_vit.figures.pixels import colouring, displayed, value_range
from ssl_vit.report.page.blocks import Block, Gallery, Picture, Words

_IMAGES, _VISITS = 10, 3
_SIDE, _GAP = 96, 6  # pixels of a cell and between cells
_MOST = 6  # views of one visit


def grid(run: Followed) -> tuple[Block, ...]:
    """Some images with their views, under a sentence.

    Args:
        run: Resolved; its view makes what is shown.
    """
    batch, _ = some_images(run.pool, _IMAGES, torch.device("cpu"))
    seen = views_of(run, batch)
    rows = [np.concatenate([cell for column in seen for cell in (column[i], None) if cell is not None], axis=1)
            for i in range(len(batch.index))]  # fmt: skip
    half = (len(rows) + 1) // 2
    told = f"Images as decoded in the first column, then as the network sees them{_hidden(run)}."
    pictures = [
        Picture(f"Images {part.start + 1} to {part.stop}", f"of {len(rows)} evenly spaced ones", _png(rows[part]))
        for part in (slice(0, half), slice(half, len(rows))) if rows[part]
    ]  # fmt: skip
    return Words(f"{told} {colouring(*run.pool.form)}".strip(), note=True), Gallery(tuple(pictures))


def _hidden(run: Followed) -> str:
    visits = f" in {_VISITS} visits" if not hasattr(run.cfg, "crops") else " in one visit"
    return f"{visits}; blue is hidden from it" if run.method.name in ("mae", "simmim") else visits


def views_of(run: Followed, batch: Batch) -> list[list[UInt8[np.ndarray, "s s 4"]]]:
    """Cells by column: images as decoded, then their views.

    Args:
        run: Resolved.
        batch: Images on the CPU.
    """
    channels, bits = run.pool.form
    original = run.scale.scaled(batch.images, torch.float32)
    photographs = channels in (1, 3) and bits == 8
    ranges = [(0.0, 1.0) if photographs else value_range(original[:, c]) for c in range(min(3, channels))]
    columns = [original]
    visits = 1 if hasattr(run.cfg, "crops") else _VISITS
    for visit in range(visits):
        epoch = torch.full_like(batch.index, visit)
        inputs = run.built.view(replace(batch, epoch=epoch), run.cfg.seed)
        columns += _pictures(run, inputs)[:_MOST]
    return [[_cell(image, ranges) for image in column] for column in columns]


def _pictures(run: Followed, inputs: dict[str, Tensor]) -> list[Float[Tensor, "B C S S"]]:
    """Every view of a visit in [0, 1]; what is hidden from the network is no number."""
    if "globals" in inputs:
        views = [view for name in ("globals", "locals") if name in inputs for view in inputs[name].unbind(1)]
        return [run.scale.restore(view) for view in views]
    images = run.scale.restore(inputs["images"])
    hidden = inputs.get("hidden")
    if "mask_ids" in inputs:
        across = images.shape[-1] // (run.cfg.model.patch_size or 1)
        flat = torch.zeros((len(images), across * across), dtype=torch.bool)
        hidden = flat.scatter(1, inputs["mask_ids"], True).unflatten(1, (across, across))
    if hidden is None:
        return [images]
    side = images.shape[-1] // hidden.shape[-1]
    whole = hidden.repeat_interleave(side, 1).repeat_interleave(side, 2)
    return [torch.where(whole[:, None], torch.nan, images)]


def _cell(image: Float[Tensor, "C h w"], ranges: list[tuple[float, float]]) -> UInt8[np.ndarray, "s s 4"]:
    """A square with the image in its middle and nothing around it."""
    channels = len(ranges)
    order = {1: [0, 0, 0], 2: [0, 1, 0]}.get(channels, [0, 1, 2])  # two channels: magenta and green
    planes = [displayed(image[None, [c]], *ranges[c])[0, :, :, k] for k, c in enumerate(order)]
    pixels = np.rint(255 * np.stack(planes, axis=2)).astype(np.uint8)
    height, width = pixels.shape[:2]
    scale = _SIDE / max(height, width)
    kernel = Image.Resampling.NEAREST if scale >= 2 else Image.Resampling.BICUBIC
    drawn = Image.fromarray(pixels).resize((max(1, round(width * scale)), max(1, round(height * scale))), kernel)
    cell = Image.new("RGBA", (_SIDE + _GAP, _SIDE + _GAP))
    cell.paste(drawn, ((_SIDE - drawn.width) // 2, (_SIDE - drawn.height) // 2))
    return np.asarray(cell)


def _png(rows: list[np.ndarray]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.concatenate(rows, axis=0)[:-_GAP, :-_GAP]).save(file, "PNG")
    return file.getvalue()
