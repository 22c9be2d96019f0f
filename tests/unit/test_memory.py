"""What bounds memory: outputs in chunks, activations computed again, and a message where it was too little."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from ssl_vit.configs import DataConfig, LabelledDataConfig, ResolvedFit, ResolvedModel, ResolvedOptim
from ssl_vit.core.errors import UserError
from ssl_vit.data.loading.loader import Batch, Loader
from ssl_vit.data.sources.opening import open_pool
from ssl_vit.methods.dino import ResolvedDINO
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import build_backbone, make_backbone
from ssl_vit.objectives.base import Objective
from ssl_vit.objectives.dino import DINO
from ssl_vit.runs.directory import RunDir
from ssl_vit.training import launch, loop
from ssl_vit.training.metering import out_of_memory
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

MODEL = ResolvedModel("vit_tiny_patch16_224", 8, 2, 16, 3, 2, "sincos", "cls")


class Largest(TorchDispatchMode):
    """Numbers in the largest tensor that any operation returns."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(one, Tensor):
                self.numbers = max(self.numbers, one.untyped_storage().nbytes() // one.element_size())
        return result


def dino(backbone: Backbone | None = None, **changes: Any) -> DINO:
    torch.manual_seed(0)
    cfg = ResolvedDINO(out_dim=5000, head_hidden=16, head_bottleneck=4, teacher_temp=0.07, warmup_teacher_temp=0.04,
                     teacher_warmup=0.0, **changes, drop_path=0.0, centring="mean")  # fmt: skip
    if backbone is not None:
        return DINO(backbone, cfg, pool="mean", batch_size=8)
    return DINO(build_backbone(MODEL, 1), cfg, pool="cls", batch_size=8)


def crops() -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(0)
    return {"globals": torch.randn(8, 2, 1, 8, 8, generator=g), "locals": torch.randn(8, 2, 1, 4, 4, generator=g)}


@pytest.mark.parametrize(("chunk", "limit"), [(1, 4), (2, 8), (8, 32)])
def test_no_more_outputs_than_a_chunk_of_images_are_in_memory(chunk: int, limit: int) -> None:
    objective = dino(loss_chunk=chunk)
    with Largest() as largest:
        objective(crops()).loss.backward()
    assert largest.numbers == limit * 5000  # views x images x outputs; the last layer alone has 4 x 5000


def saved(backbone: Backbone, images: Tensor) -> tuple[int, list[Tensor]]:
    """Numbers kept for the backward pass, and the gradients."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        loss = backbone.forward_pooled(images, pool="cls" if backbone.class_token else "mean").square().sum()
    loss.backward()
    return sum(kept.values()), [p.grad for p in backbone.parameters() if p.grad is not None]


def test_recomputing_activations_keeps_less_and_changes_nothing() -> None:
    torch.manual_seed(0)
    plain, again = build_backbone(MODEL, 1), build_backbone(MODEL, 1)
    again.load_state_dict(plain.state_dict())
    again.recompute_activations()
    images = torch.randn(16, 1, 8, 8)
    (much, expected), (little, found) = saved(plain, images), saved(again, images)
    assert little < 0.6 * much
    for a, b in zip(expected, found, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["deit_tiny_distilled_patch16_224", "vit_relpos_small_patch16_224"])
def test_tokens_of_other_networks_keep_less_too(name: str) -> None:
    """MAE and a teacher's lessons read tokens, which goes past the blocks' own forward."""
    kept: list[int] = []
    for again in (False, True):
        torch.manual_seed(0)
        net = cast(Any, make_backbone(name, {"embed_dim": 48, "depth": 6, "num_heads": 2}, img_size=224))
        if again:
            net.recompute_activations()
        sizes: dict[int, int] = {}

        def note(tensor: Tensor, sizes: dict[int, int] = sizes) -> Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
            net.forward_tokens(torch.randn(2, 3, 224, 224)).patches.square().sum().backward()
        kept.append(sum(sizes.values()))
    assert kept[1] < 0.5 * kept[0]


def test_recomputing_is_refused_where_it_would_count_batches_twice() -> None:
    with pytest.raises(UserError, match="recompute true: resnet10t has batch normalisation"):
        make_backbone("resnet10t", {}, img_size=32).recompute_activations()


def trained(objective: Objective, view: Any, path: Path, **changes: Any) -> None:
    changes = {"precision": "fp32"} | changes
    accelerator = launch.join(changes["precision"])
    pool, _ = open_pool(DataConfig(), LabelledDataConfig())
    loader = Loader(pool.subset(np.arange(8)), batch_size=8, micro_batch=8, seed=0, device=accelerator.device)
    fit = ResolvedFit(epochs=1.0, batch_size=8, min_steps=0, log_every=1, **changes)
    optim = ResolvedOptim(lr=1e-3, base_lr=1e-3)
    loop.fit(objective, loader, view, fit=fit, optim=optim, run=RunDir(path, True), accelerator=accelerator, seed=0)


def test_the_loop_recomputes_where_it_is_told_to(tmp_path: Path) -> None:
    objective = dino()
    trained(objective, lambda batch, seed: crops(), tmp_path, recompute=True)
    assert objective.student.backbone.recompute  # pyright: ignore[reportAttributeAccessIssue]


def test_attention_of_timms_own_modules_is_computed_again_as_it_was(tmp_path: Path) -> None:
    """In bf16 a CPU takes plain products for it, in both passes."""
    net = make_backbone(
        "pvt_v2_b0", {"embed_dims": [8, 8, 8, 16], "depths": [1, 1, 1, 1], "num_heads": [1, 2, 2, 2]}, img_size=32
    )
    images = torch.randn(8, 2, 3, 32, 32)
    objective = dino(net, loss_chunk=8)
    trained(objective, lambda batch, seed: {"globals": images}, tmp_path, recompute=True, precision="bf16")


def test_too_little_memory_names_what_helps(tmp_path: Path) -> None:
    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        return {"globals": torch.empty(2**60)}  # more than any machine has

    with pytest.raises(UserError, match=r"out of memory with 8 images .*--fit.micro_batch 4 .*--crops.local_crops"):
        trained(dino(), view, tmp_path)


def test_other_failures_are_not_taken_for_too_little_memory(tmp_path: Path) -> None:
    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        trained(dino(), view, tmp_path)
    assert out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
