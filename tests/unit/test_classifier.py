"""Exported classifiers: plain timm gives the same outputs, and nothing about them is forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from ssl_vit.configs import ResolvedModel
from ssl_vit.core.errors import UserError
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.targets import TargetScale
from ssl_vit.exports.classifier import Labelling, export_classifier, load_classifier
from ssl_vit.exports.timm_folder import export_backbone, load_backbone
from ssl_vit.models.build import build_backbone
from ssl_vit.models.heads import Classifier

SCALE = PixelScale((0.4, 0.5), (0.2, 0.3), 16)
CLASSES = Labelling("class", ("cat", "dog", "owl"), None)
POOLS = ["cls", "mean", "mean_prenorm"]


def classifier(pool: str, hidden: int = 0) -> Classifier:
    torch.manual_seed(0)
    model_pool = "cls" if pool == "cls" else "mean"
    backbone = build_backbone(ResolvedModel("vit_small_patch16_224", 24, 4, 32, 2, 2, "sincos", model_pool), 2)
    net = Classifier(backbone, 3, pool=pool, hidden=hidden).eval()  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net


@pytest.mark.parametrize("pool", POOLS)
def test_plain_timm_gives_the_same_outputs(pool: str, tmp_path: Path) -> None:
    net = classifier(pool)
    assert export_classifier(net, tmp_path / "run" / "classifier", SCALE, CLASSES, {})
    theirs = timm.create_model(f"local-dir:{tmp_path / 'run' / 'classifier'}", pretrained=True).eval()
    images = torch.randn(4, 2, 24, 24)
    with torch.no_grad():
        ours = net(images)
        assert float(ours.std()) > 0.1
        assert (theirs(images) - ours).abs().max() <= 1e-5
    assert theirs.num_classes == 3
    assert theirs.pretrained_cfg["mean"] == [0.4, 0.5]
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["classifier"]


@pytest.mark.parametrize("given", ["run", "run/classifier"])
@pytest.mark.parametrize("pool", POOLS)
def test_round_trip(pool: str, given: str, tmp_path: Path) -> None:
    net = classifier(pool)
    labelling = Labelling("regression", ("a", "b", "c"), TargetScale((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)))
    export_classifier(net, tmp_path / "run" / "classifier", SCALE, labelling, {"objective": "supervised"})
    found = load_classifier(str(tmp_path / given))
    assert found.labelling == labelling
    assert (found.exported.scale, found.exported.size) == (SCALE, 24)
    assert found.exported.about["objective"] == "supervised"
    images = torch.randn(4, 2, 24, 24)
    with torch.no_grad():
        assert torch.equal(found.net.eval()(images), net(images))


def test_the_backbone_inside_is_found_too(tmp_path: Path) -> None:
    net = classifier("mean_prenorm")
    export_classifier(net, tmp_path / "classifier", SCALE, CLASSES, {})
    found = load_backbone(str(tmp_path / "classifier"))
    assert torch.equal(
        found.backbone.vit.blocks[1].mlp.fc2.weight, net.backbone.get_parameter("vit.blocks.1.mlp.fc2.weight")
    )
    assert torch.equal(found.backbone.vit.fc_norm.weight, net.fc_norm.get_parameter("weight"))
    plain = timm.create_model(f"local-dir:{tmp_path / 'classifier'}", pretrained=True).eval()
    images = torch.randn(4, 2, 24, 24)
    with torch.no_grad():
        theirs = plain.forward_head(plain.forward_features(images), pre_logits=True)
        for ours in (
            found.backbone.eval().forward_pooled(images, pool="mean"),
            found.backbone.pooled_and_map(images, pool="mean")[0],
        ):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"names": ["a", "b"]}, "do not fit what config.json says of its classifier"),
        ({"heads": 2}, "do not fit what config.json says of its classifier"),
        ({"target_mean": [0.0, 0.0, 0.0]}, "target_std in config.json must be a number for each name"),
    ],
)
def test_a_classifier_that_its_config_does_not_fit_is_told(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    export_classifier(classifier("cls"), tmp_path / "classifier", SCALE, CLASSES, {})
    config = json.loads((tmp_path / "classifier" / "config.json").read_text())
    config["ssl_vit"]["classifier"] |= change
    (tmp_path / "classifier" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=words) as told:
        load_classifier(str(tmp_path / "classifier"))
    assert "\n" not in str(told.value)


def test_a_hidden_layer_has_no_place_in_timm(tmp_path: Path) -> None:
    assert not export_classifier(classifier("cls", hidden=5), tmp_path / "classifier", SCALE, CLASSES, {})
    assert not (tmp_path / "classifier").exists()


def test_outputs_become_answers() -> None:
    outputs = np.array([[0.0, np.log(3.0)], [1000.0, 0.0]], dtype=np.float32)
    names = ("a", "b")
    assert np.allclose(Labelling("class", names, None).answers(outputs), [[0.25, 0.75], [1, 0]])
    assert np.allclose(Labelling("multilabel", names, None).answers(outputs), [[0.5, 0.75], [1, 0.5]])
    scale = TargetScale((10.0, 0.0), (2.0, 1.0))
    assert np.allclose(Labelling("regression", names, scale).answers(outputs), [[10, np.log(3)], [2010, 0]])


def test_folders_without_a_classifier(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--classifier is missing"):
        load_classifier("")
    with pytest.raises(UserError, match="does not exist"):
        load_classifier(str(tmp_path / "nowhere"))
    (tmp_path / "run" / "environment.json").mkdir(parents=True)
    with pytest.raises(UserError, match=rf"does not exist; .*; did you mean {tmp_path}/run\?"):
        load_classifier(str(tmp_path / "ran"))
    with pytest.raises(UserError, match="holds no classifier"):
        load_classifier(str(tmp_path))
    export_backbone(classifier("cls").backbone, tmp_path / "backbone", SCALE, "cls", {})
    with pytest.raises(UserError, match="holds no classifier"):
        load_classifier(str(tmp_path / "backbone"))
