"""Distillation: against plain torch; what the teacher reads, and that it stays as it is; identity of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from ssl_vit.configs import FitConfig, ModelConfig, ResolvedAugment, ResolvedModel, RunConfig, parse
from ssl_vit.configs.cli import as_words, from_words
from ssl_vit.core.errors import UserError
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.timm_folder import load_backbone
from ssl_vit.methods.distill import METHOD, DistillConfig, DistillRecipe
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import build_backbone, make_backbone
from ssl_vit.objectives.distill import Distillation, cosine_distance, distill_view, load_teacher, map_shape
from ssl_vit.script import check_options
from ssl_vit.training.forecast import count, network_of
from ssl_vit.training.pretraining import pretrain
from torch import Tensor

from made_teacher import save_teacher

EXACT = {"rtol": 0.0, "atol": 1e-10}
PLAIN = ResolvedAugment(crop_scale=(1.0, 1.0), flip=False, policy="none", erasing=0.0)
SMALL: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2},
    "test_resnet": {},
    "test_convnext": {},
    "swin_tiny_patch4_window7_224": {
        "img_size": 32, "patch_size": 2, "window_size": 4, "embed_dim": 16, "depths": (1, 1, 2),
        "num_heads": (1, 2, 4), "strict_img_size": False,
    },
    "beit_base_patch16_224": {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2},
}  # fmt: skip


def network(name: str, seed: int = 0, size: int = 32) -> Backbone:
    torch.manual_seed(seed)
    return make_backbone(name, {"in_chans": 2, **SMALL[name]}, img_size=size)


def vit(seed: int = 1, *, patch: int = 4, width: int = 16) -> Backbone:
    torch.manual_seed(seed)
    return build_backbone(ResolvedModel("vit_tiny_patch16_224", 16, patch, width, 2, 2, "learnable", "mean"), 2)


def inputs(size: int = 16, taught: int = 32) -> dict[str, Tensor]:
    torch.manual_seed(5)
    return {"images": torch.randn(6, 2, size, size).double(), "taught": torch.randn(6, 2, taught, taught).double()}


@pytest.mark.parametrize("name", SMALL)
def test_both_features_come_from_one_pass(name: str) -> None:
    net = network(name).double().eval()
    images = torch.randn(3, 2, 32, 32).double()
    for pool in ("cls", "mean") if net.class_token else ("mean",):
        pooled, places = net.pooled_and_map(images, pool=pool)
        torch.testing.assert_close(pooled, net.forward_pooled(images, pool=pool), **EXACT)
        torch.testing.assert_close(places, net.feature_map(images), **EXACT)
    assert map_shape(net) == (places.shape[1], places.shape[2])


@pytest.mark.parametrize("name", SMALL)
def test_the_loss_and_its_gradients_are_those_of_plain_torch(name: str) -> None:
    """As one would write it down: two linear layers, cosines, the teacher's map at the student's 4 x 4 places."""
    cfg = DistillConfig(pooled_weight=0.3, map_weight=2.0)
    teacher = network(name)
    objective = Distillation(vit(), teacher, cfg, pool="mean", taught_pool="mean").double()
    given = inputs()
    loss, metrics = objective(given)
    student, project, project_map = objective.backbone, objective.project, objective.project_map
    assert project_map is not None
    with torch.no_grad():
        wanted, places = teacher.forward_pooled(given["taught"], pool="mean"), teacher.feature_map(given["taught"])
    if places.shape[2] != 4:
        places = F.interpolate(places, (4, 4), mode="bilinear", antialias=True)
    found = project_map(student.feature_map(given["images"]).permute(0, 2, 3, 1))
    of_map = 1 - F.cosine_similarity(found, places.permute(0, 2, 3, 1), dim=-1)
    pooled = 1 - F.cosine_similarity(project(student.forward_pooled(given["images"], pool="mean")), wanted)
    plain = 0.3 * pooled.mean() + 2.0 * of_map.mean()
    torch.testing.assert_close(loss, plain, **EXACT)
    torch.testing.assert_close(metrics["pooled"], pooled.mean().detach(), **EXACT)
    torch.testing.assert_close(metrics["map"], of_map.mean().detach(), **EXACT)
    trained = [p for p in objective.parameters() if p.requires_grad]
    for gradient, same in zip(torch.autograd.grad(loss, trained), torch.autograd.grad(plain, trained), strict=True):
        torch.testing.assert_close(gradient, same, **EXACT)


def test_cosine_distance_in_closed_cases() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    assert float(cosine_distance(x, 7 * x)) == pytest.approx(0)
    assert float(cosine_distance(x, -x)) == pytest.approx(2)
    assert float(cosine_distance(x, x.flip(1))) == pytest.approx(1)
    assert cosine_distance(x.bfloat16(), x.bfloat16()).dtype == torch.float32


def test_a_student_that_is_its_teacher_has_nothing_to_learn() -> None:
    objective = Distillation(vit(), vit(), DistillConfig(), pool="mean", taught_pool="mean").double()
    assert objective.project_map is not None
    with torch.no_grad():
        for layer in (objective.project, objective.project_map):
            layer.weight.copy_(torch.eye(16))
            layer.bias.zero_()
    same = inputs()["images"]
    loss, metrics = objective({"images": same, "taught": same})
    assert max(float(loss.detach()), *map(float, metrics.values())) < 1e-12


def test_the_map_is_left_out_where_it_has_no_weight() -> None:
    objective = Distillation(vit(), network("test_resnet"), DistillConfig(map_weight=0), pool="mean",
                             taught_pool="mean").double()  # fmt: skip
    assert list(objective(inputs()).metrics) == ["pooled"]
    assert not [name for name, _ in objective.named_parameters() if "map" in name]
    with pytest.raises(UserError, match="are both 0"):
        asked = DistillRecipe(distill=DistillConfig(pooled_weight=0, map_weight=0))
        METHOD.resolve(asked, *network_of(METHOD, asked, 1000, 8, cpu=True))


def test_a_teacher_stays_as_it_is_and_in_no_checkpoint() -> None:
    teacher = network("test_resnet")
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    objective = Distillation(vit(), teacher, DistillConfig(), pool="mean", taught_pool="mean")
    objective.train()
    assert not any(part.training for part in teacher.modules())
    optimizer = torch.optim.AdamW([p for p in objective.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(2):
        objective({name: value.float() for name, value in inputs().items()}).loss.backward()
        optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert all(p.grad is None for p in teacher.parameters())
    assert not [name for name in objective.state_dict() if "teacher" in name]
    assert not {id(p) for p in objective.parameters()} & {id(p) for p in teacher.parameters()}
    objective.double()
    assert next(teacher.parameters()).dtype == torch.float64


def batch_of(channels: int, side: int = 24, *, deep: bool = False) -> Batch:
    torch.manual_seed(2)
    index = torch.arange(5)
    pixels = torch.randint(0, 65536 if deep else 256, (5, channels, side, side)).to(
        torch.int32 if deep else torch.uint8
    )
    return Batch(pixels, index, torch.zeros_like(index), torch.full((5, 2), float(side)), True, None)


@pytest.mark.parametrize(("size", "taught"), [(8, 8), (8, 16), (16, 8)])
def test_both_networks_read_one_view_each_at_its_size_and_in_its_scale(size: int, taught: int, tmp_path: Path) -> None:
    args = {"img_size": taught, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2, "in_chans": 2}
    teacher = load_backbone(save_teacher(tmp_path / "t", size=taught, **args))
    scale, cfg = PixelScale((0.5, 0.4), (0.2, 0.1), 8), replace(PLAIN, crop_scale=(0.3, 1.0), flip=True)
    seen = distill_view(scale, cfg, teacher, size=size, dtype=torch.float64)(batch_of(2), 0)
    assert (seen["images"].shape[2], seen["taught"].shape[2]) == (size, taught)
    own, other = scale.restore(seen["images"]), teacher.scale.restore(seen["taught"])
    assert other.min() > -1e-9 and other.max() < 1 + 1e-9
    if size == taught:
        torch.testing.assert_close(own, other, **EXACT)
    else:  # the same crops, the larger one made smaller
        small, large = (own, other) if size < taught else (other, own)
        again = F.interpolate(large, (8, 8), mode="bilinear", antialias=True)
        assert F.cosine_similarity(small.flatten(1) - 0.5, again.flatten(1) - 0.5).min() > 0.95


def test_grey_images_and_images_of_other_bits(tmp_path: Path) -> None:
    args = {"img_size": 24, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
    rgb = load_backbone(save_teacher(tmp_path / "rgb", size=24, **args))
    seen = distill_view(PixelScale((0.5,), (0.2,), 8), PLAIN, rgb, size=24, dtype=torch.float64)(batch_of(1), 0)
    assert seen["taught"].shape == (5, 3, 24, 24)
    torch.testing.assert_close(rgb.scale.restore(seen["taught"])[:, 2], 0.5 + 0.2 * seen["images"][:, 0], **EXACT)
    deep = PixelScale((0.02,), (0.01,), 16)
    seen = distill_view(deep, PLAIN, rgb, size=24, dtype=torch.float64)(batch_of(1, deep=True), 0)
    torch.testing.assert_close(seen["taught"], seen["images"].expand(-1, 3, -1, -1), **EXACT)
    same = load_backbone(save_teacher(tmp_path / "deep", size=24, bits=16, in_chans=1, **args))
    seen = distill_view(deep, PLAIN, same, size=24, dtype=torch.float64)(batch_of(1, deep=True), 0)
    torch.testing.assert_close(same.scale.restore(seen["taught"]), deep.restore(seen["images"]), **EXACT)


def test_teachers_that_cannot_be_had(tmp_path: Path) -> None:
    saved = save_teacher(tmp_path / "t")
    known = load_backbone(saved).weights_hash
    assert load_teacher(DistillConfig(saved, teacher_weights=known), 1).weights_hash == known
    with pytest.raises(UserError, match=f"has the weights {known}, and --distill.teacher_weights names 12ab;"):
        load_teacher(DistillConfig(saved, teacher_weights="12ab"), 1)
    with pytest.raises(UserError, match=r"reads images of 1 channel\(s\), and these have 3; give a teacher"):
        load_teacher(DistillConfig(saved), 3)
    for given, words in (("", "--teacher is missing"), (str(tmp_path / "no"), "--teacher .*no does not exist")):
        with pytest.raises(UserError, match=words):
            load_teacher(DistillConfig(given), 1)
        with pytest.raises(UserError, match=words):
            check_options(DistillRecipe(distill=DistillConfig(given)))


def test_the_teacher_may_be_named_in_three_ways() -> None:
    for words in (["RUN", "cells"], ["--teacher", "RUN", "cells"], ["--distill.teacher=RUN", "--data.path", "cells"]):
        found = parse(DistillRecipe, "", words)
        assert (found.distill.teacher, found.data.path) == ("RUN", "cells")
        assert from_words(DistillRecipe, as_words(found)) == found


def test_a_teacher_costs_and_counts(tmp_path: Path) -> None:
    """Its operations are those of a run; other weights are another run, with the same name too."""
    from ssl_vit.data.decoding.formats import Format

    costs = []
    for depth in (2, 6):
        args = {"img_size": 8, "patch_size": 2, "embed_dim": 24, "depth": depth, "num_heads": 2, "in_chans": 1}
        asked = from_words(DistillRecipe, ["--teacher", save_teacher(tmp_path / f"{depth}", **args)])
        cfg = METHOD.resolve(asked, *network_of(METHOD, asked, 1000, 8, cpu=True))
        costs.append(count(METHOD, cfg, Format(1, 8)).flops)
    block = 2 * (17 * 12 * 24**2) + 4 * 17 * 17 * 24  # products of one block, 17 tokens of width 24
    assert costs[1] - costs[0] == pytest.approx(4 * block, rel=0.01)


def test_a_run_records_its_teacher_and_goes_on_with_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved = save_teacher(tmp_path / "teacher", about={"objective": "supervised", "labels": "all", "transductive": True})
    weights = load_backbone(saved).weights_hash
    model, fit = ModelConfig(width=16, depth=1, heads=2), FitConfig(epochs=0.3, batch_size=64, log_every=1)
    asked = DistillRecipe(model=model, fit=fit, distill=DistillConfig(saved))
    run = pretrain(METHOD, asked)
    losses = [json.loads(line)["loss"] for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]
    told = yaml.safe_load((run.path / "config.yaml").read_text())["distill"]
    assert (told["teacher"], told["teacher_weights"]) == (saved, weights)
    about = json.loads((run.backbone / "config.json").read_text())["ssl_vit"]
    assert about["objective"] == f"Distillation, taught by vit_tiny_patch16_224 {weights}"
    assert (about["method"], about["transductive"]) == ("distill", True)
    assert about["teacher"] == {"given": saved, "architecture": "vit_tiny_patch16_224", "weights": weights,
                                "objective": "supervised", "labels": "all"}  # fmt: skip
    assert pretrain(METHOD, asked).path == run.path
    save_teacher(tmp_path / "teacher", seed=1)
    assert pretrain(METHOD, asked).path != run.path
    with pytest.raises(UserError, match=f"another config .distill.teacher_weights {weights} -> "):
        pretrain(METHOD, replace(asked, run=RunConfig(str(run.path))))
