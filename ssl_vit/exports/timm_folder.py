"""Checkpoints that survive a crash, and backbones that plain timm loads."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple, cast

import safetensors.torch
import torch

from ssl_vit.core.errors import UserError
from ssl_vit.core.files import write_atomically
from ssl_vit.data.boxes import judged_share
from ssl_vit.data.scale import PixelScale
from ssl_vit.models.backbone import Backbone, Pool
from ssl_vit.models.build import make_backbone
from ssl_vit.models.families import ours
from ssl_vit.models.vit import ViTBackbone


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Exported(NamedTuple):
    """A backbone as evaluation finds it."""

    backbone: Backbone
    scale: PixelScale
    pool: Pool
    size: int
    """Side of the input in pixels."""
    about: dict[str, Any]
    """What was recorded beside it: objective, step, positions, data."""
    weights_hash: str
    folder: Path

    def with_random_weights(self, seed: int) -> Backbone:
        """The same network, untrained."""
        torch.manual_seed(seed)
        return make_backbone(
            self.backbone.architecture,
            self.backbone.model_args,
            positions=self.about.get("positions", "learnable"),
            img_size=self.size,
        )


def stored(weight: torch.Tensor) -> torch.Tensor:
    """A weight as it is exported: single precision, on the CPU; whole numbers stay."""
    return (weight.detach().float() if weight.is_floating_point() else weight).cpu().contiguous()


def export_backbone(backbone: Backbone, folder: Path, scale: PixelScale, pool: str, about: dict[str, Any]) -> None:
    """Writes config.json and model.safetensors as ``timm.create_model("local-dir:...")`` expects them.

    The folder appears whole or not at all. A network of ours says what to import before timm knows it.

    Args:
        backbone: What to export.
        folder: Where to.
        scale: Pixel statistics it was trained with.
        pool: ``cls`` or ``mean``: what represents an image.
        about: Recorded under ``ssl_vit``; timm ignores it.
    """
    size, names = backbone.img_size, backbone.classifier
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    state = {k: stored(v) for k, v in backbone.timm_state().items()}
    safetensors.torch.save_file(state, part / "model.safetensors", metadata={"format": "pt"})
    plain = isinstance(backbone, ViTBackbone)
    pooling = {"global_pool": "avg" if pool == "mean" else "token"} if plain else {}
    needed = {"import": "ssl_vit.families"} if ours(backbone.architecture) else {}
    config = {
        "architecture": backbone.architecture.partition(".")[0],
        "num_classes": 0,
        "num_features": backbone.embed_dim,
        "model_args": {**backbone.model_args, **pooling},
        "pretrained_cfg": {
            "num_classes": 0,
            "input_size": [backbone.channels, size, size],
            "fixed_input_size": "img_size" in backbone.model_args,
            "interpolation": "bicubic",
            "crop_pct": judged_share(size),
            "mean": list(scale.mean),
            "std": list(scale.std),
            "classifier": names[0] if len(names) == 1 else list(names),
        },
        "ssl_vit": {**about, "pool": pool, "bits": scale.bits} | needed,
    }
    write_atomically(part / "config.json", json.dumps(config, indent=1) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def load_backbone(given: str) -> Exported:
    """Loads an exported backbone (or any folder that timm saved of a model that makes one vector of an image).

    Args:
        given: The folder, or the run directory around it.

    Raises:
        UserError: When there is none, or the weights do not cover the network exactly.
    """
    folder = Path(given).expanduser()
    if not given:
        raise UserError("--backbone is missing; give the folder RUN/backbone that a pre-training run has written")
    if not folder.exists():
        raise UserError(f"--backbone {given} does not exist; give the folder RUN/backbone of a pre-training run")
    if (folder / "backbone" / "config.json").exists():
        folder = folder / "backbone"
    if not (folder / "config.json").exists() or not (folder / "model.safetensors").exists():
        state = " (the run there has not finished)" if (folder / "config.yaml").exists() else ""
        raise UserError(f"{folder} is no exported network: it holds no config.json and model.safetensors{state}")
    try:
        config = cast("dict[str, Any]", json.loads((folder / "config.json").read_text()))
        weights = safetensors.torch.load_file(folder / "model.safetensors")
        pretrained = config["pretrained_cfg"]
        about = config.get("ssl_vit", {})
        scale = PixelScale(tuple(pretrained["mean"]), tuple(pretrained["std"]), about.get("bits", 8))
        args = {k: v for k, v in (config.get("model_args") or {}).items() if k != "num_classes"}  # the head's
        if isinstance(args.get("img_size"), list):  # as timm saves it
            args["img_size"] = args["img_size"][-1]
        if args.get("fc_norm"):  # a classifier on the mean of patches: its norm is the only one after the blocks
            args["fc_norm"] = False
            weights = {k.replace("fc_norm.", "norm."): v for k, v in weights.items()}
        size = pretrained.get("input_size", [None])[-1]
        backbone = make_backbone(config["architecture"], args, img_size=size)
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, RuntimeError, safetensors.SafetensorError) as error:
        raise UserError(
            f"config.json or model.safetensors in {folder} cannot be read, copy or export them again: {error}"
        ) from error
    dropped = tuple(f"{name}." for name in backbone.classifier)
    if isinstance(backbone, ViTBackbone):
        backbone.model_args.setdefault("img_size", backbone.img_size)
        dropped += ("fc_norm.",)
    needed = backbone.timm_state()
    weights = {k: v for k, v in weights.items() if not k.startswith(dropped)}
    wrong = [k for k in needed if k not in weights or weights[k].shape != needed[k].shape]
    wrong += [k for k in weights if k not in needed]
    if wrong:
        raise UserError(f"the weights in {folder} do not fit {config['architecture']}: {', '.join(wrong[:5])}")
    backbone.load_timm_state(weights)
    pool = about.get("pool", "cls" if backbone.class_token else "mean")
    weights_hash = _sha256(folder / "model.safetensors")[:16]
    return Exported(backbone, scale, pool, backbone.img_size, about, weights_hash, folder)
