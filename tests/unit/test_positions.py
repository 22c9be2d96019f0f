"""Kinds of position embeddings: what they are, how they train, what is exported, and their picture."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from ssl_vit.configs import ResolvedModel
from ssl_vit.core.errors import UserError
from ssl_vit.core.masking import random_mask
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.timm_folder import export_backbone, load_backbone
from ssl_vit.figures.positions import save_position_similarities, shown_patches, similarities
from ssl_vit.methods.mae import ResolvedMAE
from ssl_vit.methods.supervised import ResolvedSupervised
from ssl_vit.models.build import build_backbone
from ssl_vit.models.positions import FactorisedPositions
from ssl_vit.models.vit import ViTBackbone, patchify
from ssl_vit.objectives.base import Clock
from ssl_vit.objectives.mae import MAE, images_from_patches, pixel_patches
from ssl_vit.objectives.supervised import Supervised
from ssl_vit.training.optim import parameter_groups
from torch import Tensor

KINDS = ["sincos", "learnable", "factorised", "none"]
SCALE = PixelScale((0.4, 0.5), (0.2, 0.3), 8)


def make(kind: str, size: int = 16) -> ViTBackbone:
    torch.manual_seed(0)
    positions = {"positions": kind}
    return build_backbone(ResolvedModel("vit_tiny_patch16_224", size, 4, 24, 2, 2, pool="mean", **positions), 2)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_backbone_without_positions_ignores_the_order_of_patches(kind: str) -> None:
    backbone = make(kind).double().eval()
    images = torch.randn(3, 2, 16, 16, dtype=torch.float64)
    order = torch.randperm(16)
    shuffled = images_from_patches(pixel_patches(images, 4)[:, order], (4, 4), 2)
    assert torch.equal(patchify(shuffled, 4), patchify(images, 4)[:, order])
    for pool in ("cls", "mean", "mean_prenorm"):
        change = (backbone.forward_pooled(shuffled, pool=pool) - backbone.forward_pooled(images, pool=pool)).abs().max()
        assert (change <= 1e-12) if kind == "none" else (change > 1e-5), (pool, change)


def test_factorised_rows_are_those_of_the_column_then_of_the_row() -> None:
    positions = FactorisedPositions(6, (2, 3), 2)
    table = positions()
    assert table.shape == (1, 2 + 6, 6)
    assert positions.pos_embed_prefix is not None
    assert torch.equal(table[0, :2], positions.pos_embed_prefix)
    for row in range(2):
        for column in range(3):
            by_hand = torch.cat([positions.pos_embed_x[column], positions.pos_embed_y[row]])
            assert torch.equal(table[0, 2 + row * 3 + column], by_hand)
    assert FactorisedPositions(6, (2, 3), 0)().shape == (1, 6, 6)


def test_factorised_tables_start_like_timms_positions() -> None:
    torch.manual_seed(0)
    values = torch.cat([p.detach().flatten() for p in FactorisedPositions(400, (16, 16), 1).parameters()])
    assert float(values.std()) == pytest.approx(0.02, rel=0.05)
    assert abs(float(values.mean())) < 1e-3


def test_factorised_parameters_are_the_axis_tables_alone() -> None:
    backbone = make("factorised")
    found = {n: tuple(p.shape) for n, p in backbone.named_parameters() if "pos_embed" in n}
    assert found == {"axes.pos_embed_x": (4, 12), "axes.pos_embed_y": (4, 12), "axes.pos_embed_prefix": (1, 24)}
    assert {backbone.layer_id(n) for n in found} == {0}
    groups = parameter_groups(backbone.named_parameters(), weight_decay=0.1, decays_tokens=False)
    decays = {n: g["weight_decay"] for g in groups for n in g["names"]}
    assert {decays[n] for n in found} == {0.0}
    assert decays["vit.blocks.0.attn.qkv.weight"] == 0.1


def masked(images: Tensor) -> dict[str, Tensor]:
    mask = random_mask(torch.rand(len(images), 16), 8)
    return {"images": images, "keep_ids": mask.keep_ids, "mask_ids": mask.mask_ids}


@pytest.mark.parametrize("kind", KINDS)
def test_mae_trains_every_kind_but_the_fixed_one(kind: str) -> None:
    objective = MAE(make(kind), ResolvedMAE(0.5, True, 16, 1, 2), freeze_positions=kind == "sincos")
    inputs = masked(torch.randn(8, 2, 16, 16))
    optimizer = torch.optim.AdamW([p for p in objective.parameters() if p.requires_grad], lr=3e-3)
    before = copy.deepcopy(objective.backbone.state_dict())
    first = objective(inputs).loss
    for _ in range(10):
        objective(inputs).loss.backward()
        unused = [n for n, p in objective.named_parameters() if p.requires_grad and p.grad is None]
        assert not unused  # DDP would wait for them for ever
        optimizer.step()
        optimizer.zero_grad()
    assert objective(inputs).loss < first
    moved = {n for n, v in objective.backbone.state_dict().items() if not torch.equal(v, before[n])}
    positions = {n for n in before if "pos_embed" in n}
    assert positions & moved == (set() if kind == "sincos" else positions)


def test_averaged_copies_and_checkpoints_keep_factorised_positions() -> None:
    objective = Supervised(make("factorised"), 3, ResolvedSupervised("cls", ema_decay=0.5, mixup=0.0, cutmix=0.0))
    assert objective.average is not None
    with torch.no_grad():
        for p in objective.net.parameters():
            p.add_(1.0)
    objective.after_step(Clock(20, 30, 1.0))
    trained, kept = objective.net.backbone, objective.average.backbone
    assert torch.allclose(kept.get_parameter("axes.pos_embed_x"), trained.get_parameter("axes.pos_embed_x") - 0.5)
    other = Supervised(make("factorised"), 3, ResolvedSupervised("cls", ema_decay=0.5, mixup=0.0, cutmix=0.0))
    other.load_state_dict(objective.state_dict())
    images = torch.randn(2, 2, 16, 16)
    assert torch.equal(other.classifier()(images), objective.classifier()(images))


@pytest.mark.parametrize("kind", KINDS)
def test_plain_timm_loads_every_kind(tmp_path: Path, kind: str) -> None:
    backbone = make(kind).eval()
    export_backbone(backbone, tmp_path / "backbone", SCALE, "mean", {"positions": kind})
    theirs = timm.create_model(f"local-dir:{tmp_path / 'backbone'}", pretrained=True).eval()
    found = load_backbone(str(tmp_path))
    images = torch.randn(3, 2, 16, 16)
    with torch.no_grad():
        ours = backbone.forward_pooled(images, pool="mean")
        assert (theirs(images) - ours).abs().max() <= 1e-6
        assert torch.equal(found.backbone.eval().forward_pooled(images, pool="mean"), ours)
    # A factorised embedding becomes an ordinary table on the way; none stays none.
    assert (theirs.pos_embed is None) == (kind == "none")
    assert (found.backbone.position_table() is None) == (kind == "none")
    assert found.backbone.axes is None
    random = found.with_random_weights(5)
    assert (random.axes is not None) == (kind == "factorised")
    assert (random.position_table() is None) == (kind == "none")
    expected, made = backbone.patch_positions(), random.patch_positions()
    if expected is not None and made is not None:
        assert torch.equal(made, expected) == (kind == "sincos")


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (1, [0]),
        (4, [0, 1, 2, 3]),
        (8, list(range(8))),
        (9, [0, 2, 4, 6, 8]),
        (14, [0, 2, 4, 6, 8, 10, 12]),
        (32, [1, 5, 9, 13, 17, 21, 25, 29]),
    ],
)
def test_large_grids_show_every_kth_patch(count: int, shown: list[int]) -> None:
    assert shown_patches(count) == shown


def test_similarities_are_cosines() -> None:
    positions = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0], [-4.0, 0.0]])
    half = 0.5**0.5
    by_hand = [[1, 0, half, -1], [0, 1, half, 0], [half, half, 1, -half], [-1, 0, -half, 1]]
    assert np.abs(similarities(positions) - np.array(by_hand)).max() <= 1e-12


@pytest.mark.parametrize(("kind", "size"), [("sincos", 56), ("learnable", 4), ("factorised", 16)])
def test_a_picture_of_every_kind_and_grid(tmp_path: Path, kind: str, size: int) -> None:
    path = tmp_path / "new" / "positions.png"
    save_position_similarities(make(kind, size), path, kind=kind)
    with Image.open(path) as picture:
        panels = len(shown_patches(size // 4))
        side = min(2.3, max(1.15, 6.9 / panels)) + 0.08
        assert picture.width / 160 == pytest.approx(0.65 + panels * side - 0.08 + 1.15, abs=0.02)
        assert panels * side < picture.height / 160 < panels * side + 2.0
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    # Viridis ends in this yellow: every panel has its own patch in it.
    assert (np.abs(pixels.astype(int) - (253, 231, 36)).max(axis=1) <= 3).sum() > 1000


def test_without_positions_there_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no position embedding"):
        save_position_similarities(make("none"), tmp_path / "positions.png", kind="none")
    assert not list(tmp_path.iterdir())
