"""What a view asks of a device, counted on torch's meta device: each operation would be a kernel on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ssl_vit.configs import ResolvedAugment, ResolvedCrops
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.methods.supervised import ResolvedSupervised
from ssl_vit.models.stochastic_depth import linear_rates
from ssl_vit.objectives.beit import beit_view
from ssl_vit.objectives.diet import diet_view
from ssl_vit.objectives.mae import mae_view
from ssl_vit.objectives.simmim import simmim_view
from ssl_vit.objectives.supervised import supervised_view
from ssl_vit.views.evaluation import eval_images
from ssl_vit.views.multicrop import multicrop_view
from ssl_vit.views.training import View
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SCALE, SINGLE = PixelScale((0.5,) * 3, (0.2,) * 3, 8), torch.float32
PAPER = ResolvedCrops(
    (0.25, 1.0), (0.05, 0.25), 8, 96, flip=True, jitter=1.0, blur=(1.0, 0.1, 0.5), blur_sigma=(0.1, 2.0), solarise=0.2
)
LOSS = ResolvedSupervised("mean", 0.1, 0.8, 1.0, 0.2, 0.0)
RATES = linear_rates(12, 0.1)


def varied(policy: Any, erasing: float = 0.0) -> ResolvedAugment:
    return ResolvedAugment(crop_scale=(0.2, 1.0), flip=True, policy=policy, erasing=erasing)


def judged(batch: Batch, seed: int) -> dict[str, Tensor]:
    return {"images": eval_images(batch, SCALE, 224, SINGLE)}


VIEWS: dict[str, tuple[int, View]] = {
    "evaluation": (80, judged),
    "mae": (115, mae_view(SCALE, varied("none"), size=224, patches=196, kept=49, dtype=SINGLE)),
    "simmim": (118, simmim_view(SCALE, varied("none"), size=224, side=32, kept=20, dtype=SINGLE)),
    "beit": (160, beit_view(SCALE, varied("none"), size=224, grid=(14, 14), hidden=75, dtype=SINGLE)),
    "diet": (320, diet_view(SCALE, varied("jitter", 0.25), size=224, classes=99, dtype=SINGLE)),
    "3-augment": (160, supervised_view(SCALE, varied("3-augment"), LOSS, size=224, drop_rates=RATES, classes=9,
                                       dtype=SINGLE)),
    "randaugment": (500, supervised_view(SCALE, varied("randaugment", 0.25), LOSS, size=224, drop_rates=RATES,
                                         classes=9, dtype=SINGLE)),
    "dino": (520, multicrop_view(SCALE, PAPER, size=224, drop_rates=RATES, dtype=SINGLE)),
}  # fmt: skip
"""The most operations that each may take, and the view."""
_MOVES_NOTHING = {
    "alias", "as_strided", "detach", "expand", "permute", "select", "slice", "split", "split_with_sizes", "squeeze",
    "t", "transpose", "unbind", "unsqueeze", "view", "_reshape_alias", "_unsafe_view", "empty", "empty_like",
    "empty_strided", "new_empty",
}  # fmt: skip


class _Counted(TorchDispatchMode):
    """Counts what gives numbers on the device, where a copy from the host is one, and what gives some on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = self.host = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        there = any(isinstance(x, Tensor) and x.device.type == "meta" for x in tree_leaves(out))
        if func.__name__.split(".")[0] not in _MOVES_NOTHING:
            self.kernels += there
            self.host += not there
        return out


def count(view: Callable[[Batch, int], Any], images: int) -> _Counted:
    index = torch.arange(images)
    pixels = torch.empty((images, 3, 256, 256), dtype=torch.uint8, device="meta")
    batch = Batch(pixels, index, index, torch.full((images, 2), 256.0), True, (index % 9).to("meta"))
    view(batch, 0)  # what is kept for good, such as the mean of a channel, gets there
    with _Counted() as counted:
        view(batch, 0)
    return counted


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_few_operations(name: str) -> None:
    most, view = VIEWS[name]
    found = count(view, 64).kernels
    assert 0.8 * most < found <= most, "another bound says what it takes now"
    assert count(view, 128).kernels <= most  # larger batches, not more of them


@pytest.mark.parametrize(
    ("name", "most"), [("evaluation", 23), ("mae", 110), ("3-augment", 200), ("randaugment", 360), ("dino", 290)]
)
def test_a_view_asks_the_host_for_few_operations(name: str, most: int) -> None:
    found = count(VIEWS[name][1], 64).host
    assert 0.8 * most < found <= most, "another bound says what it takes now"
