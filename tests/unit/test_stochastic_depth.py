"""Stochastic depth of every family: given factors scale residual branches, and nothing else is drawn."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import timm
import torch
from ssl_vit.models.build import make_backbone, model_facts
from ssl_vit.models.pooled import PooledBackbone
from ssl_vit.models.stochastic_depth import LARGEST, KeyedDropPath, linear_rates
from timm.layers.drop import DropPath
from torch import Tensor

SWIN = {"embed_dim": 12, "depths": [2, 2], "num_heads": [2, 4], "img_size": 16, "patch_size": 2, "window_size": 4}
NETS: dict[str, tuple[str, dict[str, Any], int]] = {
    "swin": ("swin_tiny_patch4_window7_224", SWIN, 16),
    "convnext": ("convnext_atto", {"depths": [1, 1, 1, 2], "dims": [8, 8, 8, 16]}, 32),
    "resnet": ("test_resnet", {}, 32),
    "pvt": ("pvt_v2_b0", {"embed_dims": [8, 8, 16, 16], "depths": [1, 1, 1, 2], "num_heads": [1, 1, 2, 2]}, 64),
    "mobilevit": ("mobilevit_xxs", {}, 64),
    "tnt": ("tnt_s_legacy_patch16_224", {"img_size": 32, "embed_dim": 24, "inner_dim": 8, "depth": 2}, 32),
    "beit": ("beit_base_patch16_224", {"img_size": 16, "patch_size": 4, "depth": 2, "num_heads": 2, "embed_dim": 16},
             16),
}  # fmt: skip


def make(name: str) -> tuple[PooledBackbone, Tensor]:
    architecture, args, size = NETS[name]
    torch.manual_seed(0)
    backbone = make_backbone(architecture, args, img_size=size)
    assert isinstance(backbone, PooledBackbone)
    for parameter in backbone.parameters():  # layer scale must not hide a branch
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, 1.0, 0.2)
    return backbone.double().eval(), torch.randn(3, 3, size, size, dtype=torch.float64)


def drawn(backbone: PooledBackbone, images: int = 3, seed: int = 0) -> Tensor:
    rates = backbone.drop_rates(0.5)
    assert rates is not None
    kept = torch.rand((images, len(rates)), generator=torch.Generator().manual_seed(seed)) >= rates
    return kept / (1 - rates)


@pytest.mark.parametrize("name", NETS)
def test_places_change_neither_weights_nor_numbers(name: str) -> None:
    architecture, args, size = NETS[name]
    torch.manual_seed(3)
    backbone = make_backbone(architecture, args, img_size=size).double().eval()
    torch.manual_seed(3)
    plain = timm.create_model(architecture, num_classes=0, **args).double().eval()
    assert backbone.timm_state().keys() == plain.state_dict().keys()
    assert all(torch.equal(backbone.timm_state()[key], value) for key, value in plain.state_dict().items())
    images = torch.randn(2, 3, size, size, dtype=torch.float64)
    assert torch.equal(backbone.forward_pooled(images, pool="mean"), plain(images))


@pytest.mark.parametrize("name", NETS)
def test_rates_are_timms_own(name: str) -> None:
    architecture, args, _ = NETS[name]
    backbone, _ = make(name)
    theirs = timm.create_model(architecture, num_classes=0, drop_path_rate=0.3, **args)
    wanted = [m.drop_prob for m in theirs.modules() if type(m) is DropPath]
    found = backbone.drop_rates(0.3)
    assert found is not None
    assert found.tolist() == pytest.approx(wanted, abs=1e-7)
    assert backbone.drop_rates(0.0) is None


@pytest.mark.parametrize("name", NETS)
def test_factors_of_one_are_no_factors_and_those_of_an_image_are_its_own(name: str) -> None:
    backbone, images = make(name)
    plain = backbone.forward_pooled(images, pool="mean")
    factors = drawn(backbone)
    assert torch.equal(backbone.forward_pooled(images, pool="mean", drop=torch.ones_like(factors)), plain)
    together = backbone.forward_pooled(images, pool="mean", drop=factors)
    for i in range(3):
        alone = backbone.forward_pooled(images[i : i + 1], pool="mean", drop=factors[i : i + 1])
        assert (together[i] - alone[0]).abs().max() <= 1e-12
    assert (together - plain).abs().max() > 1e-3
    assert torch.equal(backbone.forward_pooled(images, pool="mean"), plain)  # nothing is left behind


def test_blocks_of_swin_by_hand() -> None:
    backbone, images = make("swin")
    model: Any = backbone.model
    x = model.patch_embed(images)
    factors = drawn(backbone, seed=4)
    places = iter(range(factors.shape[1]))

    def scaled(branch: Tensor, of: torch.nn.Module) -> Tensor:
        if not isinstance(of, KeyedDropPath):  # the first block's rate is 0: timm makes no place there
            return branch
        assert of.place == next(places)
        return branch * factors[:, of.place, None, None, None]

    for stage in model.layers:
        x = stage.downsample(x)
        for block in stage.blocks:
            x = x + scaled(block._attn(block.norm1(x)), block.drop_path1)
            x = x + scaled(block.mlp(block.norm2(x)), block.drop_path2)
    wanted = model.norm(x).mean(dim=(1, 2))
    assert (backbone.forward_pooled(images, pool="mean", drop=factors) - wanted).abs().max() <= 1e-12
    assert next(places, None) is None


def test_blocks_of_convnext_without_branches_are_the_identity() -> None:
    backbone, images = make("convnext")
    model: Any = backbone.model
    found = backbone.forward_pooled(images, pool="mean", drop=torch.zeros(3, 4))
    x = model.stages[0](model.stem(images))  # of rate 0
    for stage in model.stages[1:]:
        x = stage.downsample(x)
    wanted = model.forward_head(model.norm_pre(x))
    assert (found - wanted).abs().max() <= 1e-12


@pytest.mark.parametrize("name", ["swin", "convnext", "pvt", "tnt", "beit"])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch's own
def test_recomputed_blocks_take_the_factors_of_their_own_pass(name: str, compiled: bool) -> None:
    """Two passes come before one backward pass, as with views of two sizes."""
    backbone, images = make(name)
    kept, again = backbone.train(), copy.deepcopy(backbone)
    again.recompute_activations()
    gradients = []
    for model in (kept, again):
        run = torch.compile(model.forward_pooled, backend="eager") if compiled and model is again else None
        run = run or model.forward_pooled
        first, second = (run(images, pool="mean", drop=drawn(backbone, seed=seed)) for seed in (1, 2))
        (first.square().sum() - second.sum()).backward()
        gradients.append([p.grad for p in model.parameters()])
    torch.compiler.reset()
    assert all((a - b).abs().max() <= 1e-12 for a, b in zip(*gradients, strict=True))


def test_families_without_places() -> None:
    assert not model_facts("vgg11").drop_path
    assert model_facts("test_resnet").drop_path
    backbone = make_backbone("ghostnet_050", {}, img_size=32)
    assert backbone.drop_rates(0.3) is None
    with pytest.raises(ValueError, match="no stochastic depth"):
        backbone.forward_pooled(torch.zeros(1, 3, 32, 32), pool="mean", drop=torch.ones(1, 0))


def test_rates_of_a_plain_vit() -> None:
    rates = linear_rates(5, 0.4)
    assert rates is not None
    assert torch.equal(rates, torch.linspace(0, 0.4, 5)[:, None].expand(5, 2))
    assert linear_rates(5, 0.0) is None
    assert LARGEST == 0.5
