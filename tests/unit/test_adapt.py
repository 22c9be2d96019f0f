"""Another resolution or patch size: what theory says stays the same does."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from ssl_vit.configs import ResolvedModel
from ssl_vit.core.errors import UserError
from ssl_vit.models.build import adapt, build_backbone
from ssl_vit.models.vit import ViTBackbone, patchify
from torch import Tensor


def backbone(pool: str = "cls") -> ViTBackbone:
    torch.manual_seed(0)
    cfg = ResolvedModel("vit_tiny_patch16_224", 24, 4, 24, 2, 2, "sincos", pool)  # pyright: ignore[reportArgumentType]
    return build_backbone(cfg, 2).eval()


def enlarged(images: Tensor, old: int, new: int) -> Tensor:
    """Every patch resized by itself, as FlexiViT resizes them."""
    patches = patchify(images, old).view(-1, images.shape[1], old, old)
    patches = F.interpolate(patches, size=(new, new), mode="bicubic", antialias=True)
    rows = images.shape[2] // old
    grid = patches.view(len(images), rows, -1, images.shape[1], new, new)
    return grid.permute(0, 3, 1, 4, 2, 5).reshape(len(images), images.shape[1], rows * new, -1)


def test_the_same_sizes_are_the_same_network() -> None:
    model = backbone()
    assert adapt(model) is model
    assert adapt(model, img_size=24, patch_size=4) is model


def test_positions_follow_the_grid_and_the_class_row_stays() -> None:
    model = backbone()
    with torch.no_grad():
        model.vit.pos_embed[0, 1:] = torch.linspace(-1, 1, 24)  # the same at every patch
        model.vit.pos_embed[0, 0] = torch.randn(24)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    new = adapt(model, img_size=40)
    assert new.grid == (10, 10)
    assert new.vit.pos_embed.shape == (1, 101, 24)
    assert torch.equal(new.vit.pos_embed[0, 0], model.vit.pos_embed[0, 0])
    constant = torch.linspace(-1, 1, 24).expand(100, -1)
    assert torch.allclose(new.vit.pos_embed[0, 1:], constant, rtol=0, atol=1e-6)
    for name, value in new.state_dict().items():
        if "pos_embed" not in name:
            assert torch.equal(value, before[name]), name
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("new", [6, 8, 13])
def test_enlarged_patches_give_the_same_tokens(new: int) -> None:
    model = backbone()
    images = torch.randn(3, 2, 24, 24)
    larger = adapt(model, img_size=6 * new, patch_size=new).eval()
    assert (larger.patch_size, larger.grid) == (new, (6, 6))
    with torch.no_grad():
        expected = model.forward_tokens(images)
        found = larger.forward_tokens(enlarged(images, 4, new))
    assert torch.allclose(found.prefix, expected.prefix, rtol=0, atol=1e-4)
    assert torch.allclose(found.patches, expected.patches, rtol=0, atol=1e-4)


def test_a_finer_grid_at_the_same_size() -> None:
    new = adapt(backbone(), patch_size=2)
    assert (new.patch_size, new.grid, new.model_args["img_size"]) == (2, (12, 12), 24)
    assert new.forward_pooled(torch.randn(1, 2, 24, 24), pool="cls").shape == (1, 24)


def test_sizes_that_do_not_divide() -> None:
    with pytest.raises(UserError, match=r"--model\.img_size 30 is not a multiple of --model\.patch_size 4; .*28 or 32"):
        adapt(backbone(), img_size=30)
    with pytest.raises(UserError, match=r"--model\.patch_size 5"):
        adapt(backbone(), patch_size=5)
