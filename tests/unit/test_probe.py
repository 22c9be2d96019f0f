"""Heads on a frozen backbone, their view and what the protocols resolve to."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from ssl_vit.configs import FitConfig, LinearConfig, LinearRecipe, ProbeOptimConfig, ResolvedModel
from ssl_vit.configs.presets import PRESETS
from ssl_vit.core.errors import UserError
from ssl_vit.evaluation.protocols.augmented import resolve_probe
from ssl_vit.models.build import build_backbone
from ssl_vit.objectives.probe import AttentiveHead, FrozenProbe, Standardise, linear_head


def test_standardise_is_torchs_batch_norm_without_affine() -> None:
    torch.manual_seed(0)
    ours = Standardise(5).double()
    theirs = torch.nn.BatchNorm1d(5, affine=False, eps=1e-6).double()
    for _ in range(4):
        x = torch.randn(7, 5, dtype=torch.float64) * 3 + 2
        assert (ours(x) - theirs(x)).abs().max() <= 1e-12
    assert theirs.running_mean is not None and theirs.running_var is not None
    assert (ours.mean - theirs.running_mean).abs().max() <= 1e-12
    assert (ours.var - theirs.running_var).abs().max() <= 1e-12
    ours.eval(), theirs.eval()
    assert (ours(x) - theirs(x)).abs().max() <= 1e-12
    tokens = torch.randn(3, 4, 5, dtype=torch.float64)
    assert (ours.train()(tokens).flatten(0, 1).mean(0)).abs().max() <= 1e-12  # all tokens of the batch together


def test_attentive_head_by_hand() -> None:
    torch.manual_seed(0)
    head = AttentiveHead(6, 4, 2).double().eval()
    torch.nn.init.normal_(head.query)
    tokens = torch.randn(3, 5, 6, dtype=torch.float64)
    x = tokens * torch.rsqrt(torch.tensor(1 + 1e-6, dtype=torch.float64))
    pooled = []
    for h in range(2):
        part = slice(3 * h, 3 * h + 3)
        key, value = x @ head.key.weight[part].T, x @ head.value.weight[part].T
        attention = torch.softmax(key @ head.query[h, 0] / 3**0.5, dim=1)
        pooled.append((attention[:, :, None] * value).sum(1))
    wanted = head.last(torch.cat(pooled, 1))
    assert (head(tokens) - wanted).abs().max() <= 1e-12
    with pytest.raises(UserError, match=r"--linear\.heads 4"):
        AttentiveHead(6, 4, 4)


def test_numbers_are_learned_by_their_squared_error() -> None:
    torch.manual_seed(0)
    backbone = build_backbone(ResolvedModel("vit_tiny_patch16_224", 8, 4, 8, 1, 2, "sincos", "mean"), 1)
    head = linear_head(8, 1, standardise=False)
    probe = FrozenProbe(backbone, head, reads="mean", kind="regression")
    images, labels = torch.randn(4, 1, 8, 8), torch.tensor([[-1.0], [0.0], [1.0], [2.0]])
    wanted = (probe.outputs(images) - labels).square().mean()
    assert torch.equal(probe({"images": images, "labels": labels}).loss, wanted)
    begun_before = {**probe.state_dict(), "target_mean": torch.ones(1), "target_std": torch.ones(1)}
    probe.load_state_dict(begun_before)


def resolved(protocol: str, images: int, **options: object) -> LinearRecipe:
    cfg = LinearRecipe(linear=LinearConfig(protocol=protocol))
    preset, width = PRESETS[options.pop("preset", "px224")], options.pop("width", 384)
    return resolve_probe(replace(cfg, **options), images, preset, width=width, class_token=True)  # pyright: ignore


def test_the_papers_protocols() -> None:
    mae = resolved("aug-mae", 1_281_167, width=768)
    assert mae.optim == ProbeOptimConfig("lars", None, 0.1, 1 / 9, 0.0)
    assert (mae.fit.epochs, mae.fit.batch_size, mae.linear.pool) == (90.0, 16384, "cls")
    assert (mae.augment.crop_scale, mae.augment.flip, mae.augment.policy) == ((0.08, 1.0), True, "none")
    dino = resolved("aug-dino", 1_281_167)
    assert dino.optim == ProbeOptimConfig("sgd", None, 1e-3, 0.0, 0.0)
    assert (dino.fit.epochs, dino.fit.batch_size, dino.linear.pool) == (100.0, 1024, "cls4")
    assert resolved("aug-dino", 5000, width=768).linear.pool == "cls+mean"


def test_small_sets_and_given_options() -> None:
    few = resolved("aug-mae", 1438, preset="digits")
    assert (few.fit.batch_size, few.optim.lr) == (256, 6.4)  # LARS keeps the rate of the paper's batch
    for images in (20, 1438):
        assert resolved("aug-dino", images).optim.lr == 4e-3
    assert [resolved("attentive", images).optim.lr for images in (20, 1438, 3000)] == [1e-3, 1e-3, 2e-3]
    assert resolved("attentive", 5000).optim.lr is None  # as every batch of its own
    assert few.augment.crop_scale == (1.0, 1.0)
    assert few.augment.flip is False
    own = resolved("aug-mae", 1438, optim=ProbeOptimConfig(base_lr=0.2), fit=FitConfig(epochs=3.0, batch_size=32))
    assert (own.optim.lr, own.optim.base_lr, own.fit.epochs, own.fit.batch_size) == (None, 0.2, 3.0, 32)
    assert resolve_probe(few, 1438, PRESETS["digits"], width=384, class_token=True) == few
    cfg = LinearRecipe(linear=LinearConfig(protocol="aug-dino", pool="cls4"))
    with pytest.raises(UserError, match="use mean"):
        resolve_probe(cfg, 1438, PRESETS["digits"], width=64, class_token=False)
