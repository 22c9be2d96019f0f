"""Backbones as folders that plain timm loads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float

from ssl_vit.configs import networks
from ssl_vit.configs.presets import PRESETS, Preset, for_side
from ssl_vit.core import sums
from ssl_vit.core.errors import UserError, reason
from ssl_vit.core.files import whole_folder, write_atomically, write_bytes_atomically
from ssl_vit.core.reading import read_object
from ssl_vit.data.boxes import judged_share
from ssl_vit.data.decoding.decode import decode
from ssl_vit.data.decoding.formats import Format, Unreadable
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.card import model_card
from ssl_vit.exports.config import check_config
from ssl_vit.exports.origin import made_with
from ssl_vit.models.backbone import Backbone, Pool
from ssl_vit.models.build import make_backbone
from ssl_vit.models.described import check_described
from ssl_vit.models.families import ours
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.runs.networks import FILES, network_folder, weights_hash
from ssl_vit.views.evaluation import eval_images


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

    @property
    def place(self) -> Path:
        """Where what is made of it goes: its run, or beside its own files where there is no run around it."""
        return self.folder.parent if self.folder.name == "backbone" else self.folder

    def preprocess(self, *paths: str | Path) -> Float[torch.Tensor, "B C S S"]:
        """Image files as the network reads them: every kind that training reads, 16 bits and many channels included.

        Args:
            paths: Of one file per image.

        Raises:
            UserError: For no path, and for a file that cannot be read or is of another kind than the network was built
                for.
        """
        if not paths or not all(isinstance(path, str | os.PathLike) for path in paths):
            raise UserError('preprocess takes the path of an image, or several: preprocess("a.png", "b.png")')
        return torch.cat([self._read(Path(path).expanduser()) for path in paths])

    def _read(self, path: Path) -> Float[torch.Tensor, "1 C S S"]:
        form = Format(self.backbone.channels, self.scale.bits)
        try:
            pixels, size = decode(path.read_bytes(), form, None)
        except (OSError, Unreadable) as error:
            raise UserError(f"{path} cannot be read: {reason(error)}") from error
        whole = torch.from_numpy(pixels.astype(np.int32))[None]
        nothing = torch.zeros(1, dtype=torch.int64)
        batch = Batch(whole, nothing, nothing, torch.tensor([size], dtype=torch.float32), native=True, labels=None)
        return eval_images(batch, self.scale, self.size, torch.float32)

    def with_random_weights(self, seed: int) -> Backbone:
        """The same network, untrained."""
        torch.manual_seed(seed)
        net, drawn = self.backbone, {"positions": self.about.get("positions", "learnable")}
        drawn |= {"init": self.about["init"]} if self.about.get("init") else {}
        return make_backbone(net.architecture, net.model_args, img_size=self.size, **drawn)

    def preset(self, size: int) -> Preset:
        """That of its pre-training; the one for an input of ``size`` pixels where none is on record."""
        known = self.about.get("preset") or made_with(self.folder).get("preset")
        return PRESETS.get(str(known)) or for_side(size)


def network_words(exported: Exported) -> str:
    """The network of an exported folder, as people read it.

    Args:
        exported: What was loaded.
    """
    config = read_object(exported.folder / "config.json", "copy or export it again")
    return networks.in_words(config["architecture"], config.get("model_args", {}), exported.size)


def stored(weight: torch.Tensor) -> torch.Tensor:
    """A weight as it is exported: single precision, on the CPU; whole numbers stay."""
    return (weight.detach().float() if weight.is_floating_point() else weight).cpu().contiguous()


def _not_for_timm(scale: PixelScale) -> dict[str, str]:
    """What config.json says of images that timm's own transform, which goes through Pillow, cannot read."""
    if scale.bits == 8 and len(scale.mean) in (1, 3):
        return {}
    return {"preprocessing": "timm's own transform cannot read these images; ssl_vit.load_backbone(...).preprocess can"}


def write_weights(folder: Path, state: dict[str, torch.Tensor]) -> None:
    """Writes model.safetensors, readable by whoever may read the folder (``save_file`` keeps it to its owner)."""
    content = safetensors.torch.save(state, metadata={"format": "pt"})
    write_bytes_atomically(folder / "model.safetensors", content)


def export_backbone(
    backbone: Backbone, folder: Path, scale: PixelScale, pool: str, about: dict[str, Any],
    beside: Mapping[str, dict[str, torch.Tensor]] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Writes config.json and model.safetensors as ``timm.create_model("local-dir:...")`` expects them.

    The folder appears whole or not at all, with a model card; one that holds the same network already stays, with what
    was added to its card. A network that timm does not know says there what to import first.

    Args:
        backbone: What to export.
        folder: Where to.
        scale: Pixel statistics it was trained with.
        pool: ``cls`` or ``mean``: what represents an image.
        about: Recorded under ``ssl_vit``; timm ignores it.
        beside: Files of other tensors by name; timm ignores them, too.
    """
    with whole_folder(folder, edited="README.md") as part:
        for name, tensors in beside.items():
            content = safetensors.torch.save({key: stored(value) for key, value in tensors.items()})
            write_bytes_atomically(part / name, content)
        _write(part, backbone, scale, pool, about, folder.parent)
        sums.note(part, beside)


def _write(part: Path, backbone: Backbone, scale: PixelScale, pool: str, about: dict[str, Any], run: Path) -> None:
    size, names = backbone.img_size, backbone.classifier
    state = {k: stored(v) for k, v in backbone.timm_state().items()}
    write_weights(part, state)
    pooling = {}
    if isinstance(backbone, ViTBackbone):
        pooling = {"global_pool": "avg" if pool == "mean" else "token", "fc_norm": backbone.fc_norm}
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
        "ssl_vit": {**about, "pool": pool, "bits": scale.bits, **needed, **_not_for_timm(scale)},
    }
    write_atomically(part / "config.json", json.dumps(config, indent=1) + "\n")
    card = model_card(config, run=run, weights=weights_hash(part), judged=False)
    write_atomically(part / "README.md", card)
    sums.note(part, FILES)


def load_backbone(given: str) -> Exported:
    """Loads an exported backbone (or any folder that timm saved of a model that makes one vector of an image).

    ``given`` is the folder, or the run directory around it.

    Raises:
        UserError: When there is none, or the weights do not cover the network exactly.
    """
    folder = network_folder(given)
    try:
        config = check_config(read_object(folder / "config.json", "copy or export it again"))
        weights = safetensors.torch.load_file(folder / "model.safetensors")
        pretrained, about = config["pretrained_cfg"], config.get("ssl_vit", {})
        scale = PixelScale(tuple(pretrained["mean"]), tuple(pretrained["std"]), about.get("bits", 8))
        args = check_described(
            config["architecture"], config.get("model_args") or {}, weights, config.get("global_pool")
        )
        args = {k: v for k, v in args.items() if k != "num_classes"}  # the head's
        if isinstance(args.get("img_size"), list):  # as timm saves it
            args["img_size"] = args["img_size"][-1]
        size = pretrained.get("input_size", [None])[-1]
        backbone = make_backbone(config["architecture"], args, img_size=size)
    except (UserError, ValueError, KeyError, TypeError, RuntimeError, OSError, safetensors.SafetensorError) as error:
        raise UserError(
            f"config.json or model.safetensors in {folder} cannot be read, copy or export them again: {error}"
        ) from error
    if len(scale.mean) != backbone.channels:
        raise UserError(
            f"pretrained_cfg.mean and std in {folder}/config.json must have a number for each of the "
            f"{backbone.channels} channel(s) that {config['architecture']} reads, not {len(scale.mean)}"
        )
    dropped = tuple(f"{name}." for name in backbone.classifier)
    if isinstance(backbone, ViTBackbone):
        backbone.model_args.setdefault("img_size", backbone.img_size)
    pool = about.get("pool") or backbone.own_pool()
    needed = backbone.timm_state()
    weights = {k: v for k, v in weights.items() if not k.startswith(dropped)}
    wrong = [
        k for k in needed
        if k not in weights or weights[k].shape != needed[k].shape
        or weights[k].is_floating_point() != needed[k].is_floating_point()
    ]  # fmt: skip
    wrong += [k for k in weights if k not in needed]
    if wrong:
        raise UserError(f"the weights in {folder} do not fit {config['architecture']}: {', '.join(wrong[:5])}")
    backbone.load_timm_state(weights)
    return Exported(backbone, scale, pool, backbone.img_size, about, weights_hash(folder), folder)
