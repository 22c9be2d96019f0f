"""What is read off networks, trained or not: each look leaves one file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.loading.loader import chosen_images
from ssl_vit.data.scale import PixelScale
from ssl_vit.evaluation.answers import save_answers
from ssl_vit.exports.timm_folder import load_backbone
from ssl_vit.models.backbone import Backbone, Pool, TokenBackbone
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.questions.asked.positions import shown
from ssl_vit.questions.images import looked_at, opened
from ssl_vit.questions.metrics import (
    amplitudes,
    attention_distance,
    attention_information,
    relative_change,
    shifted,
)
from ssl_vit.questions.scope import Look, Training
from ssl_vit.questions.study import Study
from ssl_vit.questions.work import begun
from ssl_vit.training import launch
from ssl_vit.views.evaluation import eval_images


def _network(study: Study, training: Training) -> tuple[Backbone, PixelScale, Pool, int] | None:
    """A network to look at: trained, pre-trained, or with random weights; None where there is none."""
    before = training.pretraining
    if training.labels or before is not None:
        place = study.network(training) if before is None else study.run(before)
        if not (place / "backbone" / "config.json").exists():
            return None
        exported = load_backbone(str(place))
        return exported.backbone.eval(), exported.scale, "mean", exported.size
    whole = replace(training, labels=study.scope.labels[-1])
    backbone, scale, _, size = begun(study, whole, study.trains(whole, study.folder / "work", 1))
    return backbone.eval(), scale, "mean", size


def look(study: Study, wanted: Look) -> dict[str, Any]:
    """Reads something off a network, and keeps it.

    Args:
        study: What it is about.
        wanted: What, and of which network.

    Returns:
        ``files``, or ``failed``: why.
    """
    accelerator = launch.join("fp32", study.recipe.seed + wanted.of.draw)
    found = _network(study, wanted.of)
    if found is None:
        return {"failed": "there is no such network"}
    backbone, scale, pool, size = found
    launch.use_cores(accelerator, size)
    backbone = backbone.to(accelerator.device)
    scope, test = study.scope, opened(study, "whole").test
    batch, _ = chosen_images(test, looked_at(test), accelerator.device)
    with torch.inference_mode():
        if wanted.what == "shifts":
            try:
                arrays = _shifts(backbone, batch, scale, pool, size, scope.patch)
            except ValueError as error:  # a network that has collapsed
                return {"failed": str(error)}
        elif wanted.what == "blocks":
            arrays = _blocks(cast(ViTBackbone, backbone), eval_images(batch, scale, size, torch.float32))
        else:
            arrays = _positions(backbone, scope.grid)
    arrays["index"] = batch.index.cpu().numpy()
    name = f"looks/{wanted.key}.npz"
    (study.folder / "looks").mkdir(parents=True, exist_ok=True)
    save_answers((study.folder / name).with_suffix(".json"), arrays)
    return {"files": [name]}


def _shifts(
    backbone: Backbone, batch: Batch, scale: PixelScale, pool: Pool, size: int, patch: int
) -> dict[str, np.ndarray]:
    """``change`` [1 + patch, images] under shifts of 0 to one patch."""

    def features(images: Tensor) -> Tensor:
        seen = eval_images(replace(batch, images=images), scale, size, torch.float32)
        return backbone.forward_pooled(seen, pool=pool).cpu()

    still = features(batch.images)
    rows = [torch.zeros(len(still), dtype=torch.float64)]
    for pixels in range(1, patch + 1):
        moved = tuple(features(images) for images in shifted(batch.images, pixels))
        rows.append(relative_change(still, moved))
    return {"change": torch.stack(rows).numpy()}


def _blocks(backbone: ViTBackbone, images: Tensor) -> dict[str, np.ndarray]:
    """Distance, information and amplitude [blocks, images], the means over heads."""
    grid, patch, prefix = backbone.grid, backbone.patch_size, backbone.prefix_tokens
    squares = [one[:, prefix:].transpose(1, 2).unflatten(2, grid).cpu() for one in backbone.after_blocks(images)]
    attended = [one.cpu() for one in backbone.attentions(images)]  # in double precision, which not every device has
    found = {
        "distance": [attention_distance(one, grid, patch, prefix=prefix).mean(dim=1) for one in attended],
        "information": [attention_information(one, prefix=prefix).mean(dim=1) for one in attended],
        "amplitude": [amplitudes(one)[:, -1] for one in squares],
    }
    return {name: torch.stack(rows).numpy() for name, rows in found.items()}


def _positions(backbone: Backbone, grid: int) -> dict[str, np.ndarray]:
    """``similarity`` [M, grid, grid] of the shown patches with all; nothing for a network that has no such table."""
    places = [row * grid + column for row, column in shown(grid)]
    table = backbone.patch_positions() if isinstance(backbone, TokenBackbone) else None
    if table is not None:
        unit = torch.nn.functional.normalize(table.cpu().double(), dim=1)
        alike = unit @ unit.T
    else:
        biases = [part for part in backbone.modules() if callable(getattr(part, "get_bias", None))]
        if not biases:
            return {}
        bias = cast(Any, biases[0]).get_bias().cpu().double()[0].mean(dim=0)
        bias = bias[-grid * grid :, -grid * grid :]
        alike = bias / bias.abs().amax().clamp_min(1e-12)
    return {"similarity": alike[places].reshape(len(places), grid, grid).numpy()}
