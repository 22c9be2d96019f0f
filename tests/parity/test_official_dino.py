"""DINO's official tensors in float64: head, loss with its centre, schedules, six whole optimiser steps of the loop."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from ssl_vit.configs import DataConfig, LabelledDataConfig, ResolvedFit, ResolvedOptim
from ssl_vit.core.schedules import teacher_temperature, warmup_cosine
from ssl_vit.data.loading.loader import Batch, Loader
from ssl_vit.data.sources.opening import open_pool
from ssl_vit.methods.dino import ResolvedDINO
from ssl_vit.models.heads import ProjectionHead
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.objectives.dino import DINO
from ssl_vit.objectives.distillation import LastLayer, Teaching, cross_view_loss
from ssl_vit.runs.directory import RunDir
from ssl_vit.training import launch, loop
from ssl_vit.training.checkpoint import load_checkpoint
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

FIXTURES = Path(__file__).parent / "fixtures"
GOLDEN = json.loads((FIXTURES / "golden.json").read_text())
HEAD, LOSS, STEPS = (load_file(FIXTURES / f"dino_{name}.safetensors") for name in ("head", "loss", "steps"))
EXACT = {"rtol": 0.0, "atol": 1e-9}


def our_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The official network's parameters under our names."""
    ours = {}
    for name, value in state.items():
        name = name.replace("last_layer.weight_v", "direction").replace("last_layer.weight_g", "gain")
        ours[name.replace("backbone.", "backbone.vit.")] = value
    return ours


def test_head() -> None:
    c = GOLDEN["dino_head"]
    head = ProjectionHead(c["in_dim"], c["out_dim"], hidden=c["hidden_dim"], bottleneck=c["bottleneck_dim"]).double()
    state = our_names({k.removeprefix("state."): v for k, v in HEAD.items() if k.startswith("state.")})
    head.load_state_dict(state)
    torch.testing.assert_close(head(HEAD["x"]), HEAD["y"], **EXACT)


@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_loss_and_centre_over_eight_steps(chunk: int) -> None:
    c = GOLDEN["dino_loss"]
    outputs, crops, batch = c["out_dim"], c["crops"], c["batch"]
    same = LastLayer(torch.eye(outputs, dtype=torch.float64), torch.ones(outputs, 1, dtype=torch.float64))
    centre = torch.zeros(outputs, dtype=torch.float64)
    for step in range(8):
        temperature = teacher_temperature(
            float(step), start=c["warmup_teacher_temp"], final=c["teacher_temp"],
            warmup_epochs=float(c["warmup_teacher_temp_epochs"]),
        )  # fmt: skip
        student = LOSS[f"student{step}"].view(crops, batch, outputs)
        teacher = LOSS[f"teacher{step}"].view(2, batch, outputs)
        teaching = Teaching(teacher, same, centre, temperature, None)
        parts = cross_view_loss(student, same, teaching, temperature=c["student_temp"], chunk=chunk)
        torch.testing.assert_close(parts.loss, LOSS[f"loss{step}"], **EXACT)
        centre = torch.lerp(centre, teacher.mean(dim=(0, 1)), 1.0 - c["center_momentum"])
        torch.testing.assert_close(centre, LOSS[f"center{step}"][0], **EXACT)


def test_cosine() -> None:
    c = GOLDEN["dino_cosine"]
    a = c["args"]
    each = a["steps_per_epoch"]
    ours = [
        warmup_cosine(step, total_steps=a["epochs"] * each, warmup_steps=a["warmup_epochs"] * each, peak=a["base"],
                      final=a["final"], peak_twice=True)
        for step in range(a["epochs"] * each)
    ]  # fmt: skip
    np.testing.assert_allclose(ours, c["values"], rtol=0, atol=1e-15)


def test_schedules_of_momentum_and_weight_decay() -> None:
    c = GOLDEN["dino_steps"]
    total = c["epochs"] * c["steps_per_epoch"]
    momentum = [warmup_cosine(s, total_steps=total, warmup_steps=0, peak=0.9, final=1.0) for s in range(total)]
    np.testing.assert_allclose(momentum, c["momentum"], rtol=0, atol=1e-15)
    decay = [warmup_cosine(s, total_steps=total, warmup_steps=0, peak=0.04, final=0.4) for s in range(total)]
    np.testing.assert_allclose(decay, c["weight_decay"], rtol=0, atol=1e-15)


class Enough(Exception):
    """Six steps are taken."""


def test_six_steps_of_the_loop(tmp_path: Path) -> None:
    """fit itself: schedules, forward, backward, clip, frozen last layer, AdamW, teacher and centre."""
    c = GOLDEN["dino_steps"]
    v, first = c["vit"], {k.removeprefix("init."): x for k, x in STEPS.items() if k.startswith("init.")}
    vit = VisionTransformer(
        img_size=v["img_size"], patch_size=v["patch_size"], embed_dim=v["embed_dim"], depth=v["depth"],
        num_heads=v["num_heads"], num_classes=0, global_pool="token",
    )  # fmt: skip
    hidden, bottleneck = first["head.mlp.2.weight"].shape[0], first["head.last_layer.weight_v"].shape[1]
    cfg = ResolvedDINO(
        out_dim=c["out_dim"], head_hidden=hidden, head_bottleneck=bottleneck, teacher_temp=c["teacher_temp"],
        warmup_teacher_temp=c["warmup_teacher_temp"], teacher_warmup=c["warmup_teacher_temp_epochs"] / c["epochs"],
        momentum=c["momentum"][0], freeze_last_layer=float(c["freeze_last_layer_epochs"]), on_collapse="warn",
        drop_path=0.0, centring="mean",
    )  # fmt: skip
    dino = DINO(ViTBackbone(vit, "vit", {}), cfg, pool="cls", batch_size=c["batch"]).double()
    for branch in (dino.student, dino.teacher):
        branch.load_state_dict(our_names(first))

    calls = iter([0, *range(7)])  # operations are counted on the first batch before it is trained on

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        step = next(calls)
        if step == 6:
            raise Enough
        crops = torch.stack([STEPS[f"step{step}.crop{i}"] for i in range(c["crops"])], dim=1)
        return {"globals": crops[:, :2], "locals": crops[:, 2:]}

    accelerator = launch.join("fp64")
    pool, _ = open_pool(DataConfig(), LabelledDataConfig())
    pool = pool.subset(np.arange(c["batch"] * c["steps_per_epoch"]))
    loader = Loader(pool, batch_size=c["batch"], micro_batch=c["batch"], seed=0, device=accelerator.device)
    fit = ResolvedFit(epochs=float(c["epochs"]), batch_size=c["batch"], precision="fp64",
                      clip_each=c["clip_per_parameter"], log_every=1, checkpoint_steps=6, min_steps=0)  # fmt: skip
    optim = ResolvedOptim(lr=0.002, min_lr=1e-5, warmup=1 / 3, schedule="peak_twice", weight_decay=0.04,
                          weight_decay_end=0.4, betas=(0.9, 0.999), base_lr=1e-3)  # fmt: skip
    with pytest.raises(Enough):
        loop.fit(dino, loader, view, fit=fit, optim=optim, run=RunDir(tmp_path, True), accelerator=accelerator, seed=0)

    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    np.testing.assert_allclose([row["lr"] for row in rows], c["lr"][:6], rtol=0, atol=1e-15)
    np.testing.assert_allclose([row["loss"] for row in rows], c["losses"], **EXACT)
    state = load_checkpoint(tmp_path / "checkpoints")
    assert state is not None
    for branch in ("student", "teacher"):
        final = our_names({k.removeprefix(f"final_{branch}."): x for k, x in STEPS.items() if f"final_{branch}." in k})
        assert len(final) == len(first)
        for name, value in final.items():
            torch.testing.assert_close(state["objective"][f"{branch}.{name}"], value, **EXACT)
    torch.testing.assert_close(state["objective"]["centre"], STEPS["final_center"][0], **EXACT)


@pytest.mark.parametrize(("grid", "local"), [(14, 6), (28, 12), (14, 7), (8, 4), (7, 3)])
def test_positions_of_local_crops(grid: int, local: int) -> None:
    """What the authors' network adds to a crop of another size: bicubic, by a scale a tenth of a patch too large."""
    torch.manual_seed(0)
    vit = VisionTransformer(img_size=4 * grid, patch_size=4, embed_dim=24, depth=1, num_heads=2, num_classes=0)
    nn.init.normal_(vit.pos_embed, std=0.02)
    cfg = ResolvedDINO(out_dim=8, head_hidden=8, head_bottleneck=4, teacher_temp=0.04, warmup_teacher_temp=0.04,
                       teacher_warmup=0.0, drop_path=0.0, centring="mean")  # fmt: skip
    dino = DINO(ViTBackbone(vit, "vit", {}), cfg, pool="cls", batch_size=4).double()
    for branch in (dino.student, dino.teacher):
        backbone = branch.backbone
        assert isinstance(backbone, ViTBackbone)
        table = backbone.vit.pos_embed[:, 1:].detach().reshape(1, grid, grid, -1).permute(0, 3, 1, 2)
        scale = (local + 0.1) / grid
        theirs = F.interpolate(table, scale_factor=(scale, scale), mode="bicubic").flatten(2).transpose(1, 2)
        images = torch.randn(2, 3, 4 * local, 4 * local, dtype=torch.float64)
        small = VisionTransformer(img_size=4 * local, patch_size=4, embed_dim=24, depth=1, num_heads=2, num_classes=0)
        state = backbone.timm_state() | {"pos_embed": torch.cat([backbone.vit.pos_embed[:, :1].detach(), theirs], 1)}
        small.double().load_state_dict(state)
        assert (backbone.forward_pooled(images, pool="cls") - small(images)).abs().max() <= 1e-12
        with torch.no_grad():  # and it matters
            backbone.antialias = True
            assert (backbone.forward_pooled(images, pool="cls") - small(images)).abs().max() > 1e-6
