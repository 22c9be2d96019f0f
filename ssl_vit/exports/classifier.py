"""Trained classifiers as folders that plain timm loads and ``eval/predict.py`` applies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import safetensors.torch
from scipy.special import expit, softmax
from torch import nn

from ssl_vit.configs.networks import check_pool
from ssl_vit.core import sums
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import whole_folder, write_atomically
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.targets import Kind, TargetScale
from ssl_vit.exports.card import model_card
from ssl_vit.exports.timm_folder import Exported, export_backbone, load_backbone, stored, write_weights
from ssl_vit.models.heads import Classifier
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.runs.networks import FILES, classifier_folder


class Labelling(NamedTuple):
    """What a classifier's outputs mean."""

    kind: Kind
    names: tuple[str, ...]
    """Of the classes, labels or numbers."""
    scale: TargetScale | None
    """What numbers were standardised by; None of classes and labels."""

    def answers(self, outputs: np.ndarray) -> np.ndarray:
        """Network outputs [n K] as class probabilities, label probabilities, or numbers in their own units."""
        outputs = outputs.astype(np.float64)
        if self.kind == "class":
            return softmax(outputs, axis=1)
        return expit(outputs) if self.scale is None else self.scale.restore(outputs)


_PROBLEMS = {
    "class": "single_label_classification", "multilabel": "multi_label_classification", "regression": "regression"
}  # fmt: skip
"""How transformers call what outputs mean: its pipelines make probabilities of them by it."""


class TrainedClassifier(NamedTuple):
    """A classifier as prediction finds it."""

    net: Classifier
    exported: Exported
    """Its backbone with pixel statistics and input size."""
    labelling: Labelling


def export_classifier(
    net: Classifier, folder: Path, scale: PixelScale, labelling: Labelling, about: dict[str, Any]
) -> bool:
    """Writes config.json and model.safetensors such that plain timm gives the same outputs.

    A backbone's folder with a head: where the mean of un-normalised patches is read, the fresh LayerNorm takes the
    final norm's place, as timm's ``fc_norm`` does.

    Returns:
        Whether it was written: timm's model may have no place for the head, as a ViT for one with a hidden layer.
    """
    if not isinstance(net.head, nn.Linear) or not net.backbone.takes_head():
        return False
    with whole_folder(folder, ".new", "README.md") as part:
        _write(part, net, scale, labelling, about, folder.parent)
    return True


def _write(
    part: Path, net: Classifier, scale: PixelScale, labelling: Labelling, about: dict[str, Any], run: Path
) -> None:
    meaning = {"kind": labelling.kind, "names": list(labelling.names), "pool": net.pool}
    if net.second is not None:
        meaning["heads"] = 2
    if labelling.scale is not None:
        meaning |= {"target_mean": list(labelling.scale.mean), "target_std": list(labelling.scale.std)}
    pool = "cls" if net.pool == "cls" else "mean"
    export_backbone(net.backbone, part, scale, pool, {**about, "classifier": meaning})
    fresh = net.pool == "mean_prenorm"
    state = safetensors.torch.load_file(part / "model.safetensors")
    if fresh:
        state = {k: v for k, v in state.items() if not k.startswith("norm.")}
    added = [("fc_norm", net.fc_norm), *net.timm_heads().items()]
    state |= {f"{name}.{k}": stored(v).clone() for name, m in added for k, v in m.state_dict().items()}
    config = cast("dict[str, Any]", json.loads((part / "config.json").read_text()))
    config["num_classes"] = config["pretrained_cfg"]["num_classes"] = len(labelling.names)
    config["label_names"] = list(labelling.names)
    config["problem_type"] = _PROBLEMS[labelling.kind]
    if isinstance(net.backbone, ViTBackbone):
        config["model_args"]["fc_norm"] = fresh or net.backbone.fc_norm
    write_weights(part, state)
    write_atomically(part / "config.json", json.dumps(config, indent=1) + "\n")
    write_atomically(part / "README.md", model_card(config, run=run, judged=False))
    sums.note(part, FILES)


def load_classifier(given: str, option: str = "--classifier") -> TrainedClassifier:
    """Loads an exported classifier from its folder, or the run directory around it; ``option`` names what was typed.

    Raises:
        UserError: When there is none.
    """
    folder = classifier_folder(given, option)
    exported = load_backbone(str(folder))
    meaning = exported.about["classifier"]
    check_pool(meaning["pool"], exported.backbone.class_token, "ssl_vit.classifier.pool")
    try:
        net = Classifier(
            exported.backbone, len(meaning["names"]), pool=meaning["pool"], two_heads=meaning.get("heads") == 2
        )
        weights = safetensors.torch.load_file(folder / "model.safetensors")
        parts = {f"{name}.": head for name, head in net.timm_heads().items()}
        if net.pool == "mean_prenorm":
            parts["fc_norm."] = net.fc_norm
        for name, module in parts.items():
            module.load_state_dict({k.removeprefix(name): v for k, v in weights.items() if k.startswith(name)})
    except (RuntimeError, IndexError) as error:
        raise UserError(
            f"the weights in {folder} do not fit what config.json says of its classifier (names, pool, heads); copy or "
            "export them again"
        ) from error
    scale = (
        TargetScale(tuple(meaning["target_mean"]), tuple(meaning["target_std"])) if "target_mean" in meaning else None
    )
    return TrainedClassifier(net, exported, Labelling(meaning["kind"], tuple(meaning["names"]), scale))
