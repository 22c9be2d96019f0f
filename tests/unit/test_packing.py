"""Views of several sizes in one pass: the same numbers and gradients as a pass for each, from fewer operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from ssl_vit.configs import ModelConfig
from ssl_vit.configs.networks import resolve_model
from ssl_vit.models import vit
from ssl_vit.models.backbone import Backbone, pooled_views
from ssl_vit.models.build import build_backbone, facts_of
from ssl_vit.models.packing import can_pack, pack, pays, token_factors, unpack
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def network(name: str = "vit_micro", depth: int | None = None) -> Backbone:
    torch.manual_seed(0)
    asked = ModelConfig(name, img_size=16, patch_size=4, depth=depth) if name == "vit_micro" else ModelConfig(name)
    return build_backbone(resolve_model(asked, 16, facts_of(asked, 16), "px32"), 3)


def views(dropped: bool) -> list[tuple[Tensor, Tensor | None]]:
    g = torch.Generator().manual_seed(1)
    images = [torch.randn(3, v, 3, side, side, generator=g).double() for v, side in ((2, 16), (4, 8))]
    drops = [torch.randint(0, 2, (3, v, 4, 2), generator=g) / 0.8 if dropped else None for v in (2, 4)]
    return list(zip(images, drops, strict=True))


def gradients(net: Backbone, run: Callable[[], Tensor]) -> tuple[Tensor, list[Tensor]]:
    found = run()
    weights = torch.arange(1.0, 1 + found.numel(), dtype=found.dtype, device=found.device).view_as(found)
    trained = [p for p in net.parameters() if p.requires_grad]
    made = torch.autograd.grad((found * weights).sum(), trained, allow_unused=True)
    return found, [torch.zeros(()) if one is None else one for one in made]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("pool", ["cls", "mean", "mean_prenorm", "cls+mean", "cls4+mean"])
def test_one_pass_gives_what_a_pass_for_each_size_gives(
    pool: Any, dropped: bool, recompute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = network().double()
    if recompute:
        net.recompute_activations()
    given = views(dropped)

    def each() -> Tensor:
        return torch.cat([pooled_views(net, pool, [part]) for part in given], dim=1)

    expected, slopes = gradients(net, each)
    monkeypatch.setattr(vit, "pays", lambda *_: True)  # as on a GPU
    packed = list[int]()
    run = vit.run_packed
    monkeypatch.setattr(vit, "run_packed", lambda *given: (packed.append(1), run(*given))[1])
    found, made = gradients(net, lambda: pooled_views(net, pool, given))
    assert bool(packed) == ("cls4" not in pool)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    for ours, theirs in zip(made, slopes, strict=True):
        torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=1e-10, atol=1e-11)


class Counted(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func(*args, **(kwargs or {}))
        self.number += not func.is_view
        return returned


def operations(run: Callable[[], object]) -> int:
    with Counted() as counted:
        run()
    return counted.number


def test_one_pass_takes_fewer_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vit, "pays", lambda *_: True)
    net, given = network(depth=12).double(), views(False)
    each = operations(lambda: gradients(net, lambda: torch.cat([pooled_views(net, "mean", [v]) for v in given], dim=1)))
    once = operations(lambda: gradients(net, lambda: pooled_views(net, "mean", given)))
    assert once < 0.7 * each, (once, each)


def test_a_gpu_takes_one_pass_and_a_cpu_several() -> None:
    assert pays(torch.device("cuda"))
    assert not pays(torch.device("cpu"))


@pytest.mark.parametrize("name", ["vit_micro", "beit_micro", "relative_micro", "deit_micro", "resnet_micro"])
def test_other_networks_take_a_pass_for_each_size(name: Literal["vit_micro"]) -> None:
    net = network(name).double()
    blocks = getattr(getattr(net, "vit", None), "blocks", ())
    assert (bool(blocks) and all(map(can_pack, blocks))) is (name == "vit_micro")
    images = [torch.randn(n, 3, net.img_size, net.img_size, dtype=torch.float64) for n in (2, 3)]
    found = net.forward_sizes(images, pool="mean", drops=[None, None])
    for ours, part in zip(found, images, strict=True):
        torch.testing.assert_close(ours, net.forward_pooled(part, pool="mean"), rtol=1e-12, atol=1e-13)


def test_rows_and_factors_come_back() -> None:
    parts = [torch.arange(24.0).view(2, 3, 4), torch.arange(60.0).view(5, 3, 4)]
    sizes = [(2, 3), (5, 3)]
    for ours, part in zip(unpack(pack(parts), sizes), parts, strict=True):
        assert torch.equal(ours, part)
    drops = [torch.arange(8.0).view(2, 2, 2), torch.arange(20.0).view(5, 2, 2)]
    factors = token_factors(drops, sizes)
    assert factors is not None and factors.shape == (2, 2, 21, 1)
    for ours, drop in zip(unpack(factors[1, 0], sizes), drops, strict=True):
        assert torch.equal(ours[:, :, 0], drop[:, 1, 0][:, None].expand(-1, 3))
    assert token_factors([None, None], sizes) is None
