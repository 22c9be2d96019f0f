"""The same training steps by other programs: checkouts of the authors' code, and packages where they are installed.

What their code expects of older versions of timm and numpy is put in place while it runs, nothing is copied. A step is
theirs as their scripts have it, without the learning-rate schedule and what is only logged; where weights can be copied
the losses of both programs are compared before anything is timed.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from ssl_vit.core.masking import kept_patches, random_mask
from ssl_vit.objectives.base import Objective

from steps import CLOCK, RATE, DINOShape, MAEShape, Ours, Shape, SupervisedShape, autocast, ours
from timing import Mark, Step

OFFICIAL = {"mae": "facebookresearch/mae", "dino": "facebookresearch/dino"}
_SAME = 1e-4  # relative difference of two losses up to which programs do the same


class Missing(Exception):
    """Why a peer is not there."""


class Peer(NamedTuple):
    """A step of theirs."""

    step: Step
    parameters: int
    difference: float | None
    """Of its loss from ours at the same weights, relative; None where weights were not copied."""
    reads: tuple[torch.Tensor, ...] = ()
    """What a step reads, to be written over by whoever has images; empty where it cannot be."""


Make = Callable[[torch.device], Peer]


def peers_of(shape: Shape, checkouts: dict[str, str | None], *, fused: bool = False) -> dict[str, Make]:
    """Makers of all programs that could do a step of this shape; a maker raises ``Missing``.

    Args:
        shape: What is trained.
        checkouts: Folders of the authors' programs.
        fused: Give them torch's fused AdamW, as ours has it, and not torch's default.
    """
    if isinstance(shape, MAEShape):
        return {
            OFFICIAL["mae"]: partial(_official_mae, shape, checkouts["mae"], fused=fused),
            "transformers": partial(_transformers, shape, fused=fused),
            "lightly": partial(_lightly, shape, fused=fused),
        }
    if isinstance(shape, DINOShape):
        return {OFFICIAL["dino"]: partial(_official_dino, shape, checkouts["dino"], fused=fused)}
    return {"timm": partial(_timm, shape, fused=fused)}


@contextmanager
def _patched(module: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute for as long as it is needed."""
    before = vars(module).get(name)
    setattr(module, name, value)
    try:
        yield
    finally:
        if before is None:
            delattr(module, name)
        else:
            setattr(module, name, before)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Missing("not installed") from None


def _checkout(folder: str | None, option: str) -> None:
    if folder is None:
        raise Missing(f"no {option} given")
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _decayed(module: torch.nn.Module, decay: float) -> Any:
    return importlib.import_module("timm.optim").param_groups_weight_decay(module, decay)


def _count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def _same(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    difference = abs(float(theirs) / float(ours) - 1)
    if not difference < _SAME:
        raise RuntimeError(f"not the same work: loss {float(theirs):.6f} of theirs, {float(ours):.6f} of ours")
    return difference


def _step(loss_of: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer, device: torch.device) -> Step:
    def step(mark: Mark) -> torch.Tensor:
        with autocast(device):
            loss = loss_of()
        seen = loss.detach()
        mark("forward")
        loss.backward()
        mark("backward")
        optimizer.step()
        optimizer.zero_grad()
        mark("optimiser")
        return seen

    return step


def _official_mae(shape: MAEShape, checkout: str | None, device: torch.device, *, fused: bool) -> Peer:
    import timm.models.vision_transformer as vit

    _checkout(checkout, "--official_mae")
    block, net = vit.Block, shape.net

    def without_scale(*args: Any, qk_scale: None = None, **options: Any) -> Any:
        return block(*args, **options)

    with _patched(vit, "Block", without_scale), _patched(np, "float", float):
        theirs = importlib.import_module("models_mae")
        model = theirs.MaskedAutoencoderViT(
            net.size, net.patch, 3, net.width, net.depth, net.heads, *shape.decoder,
            norm_layer=partial(torch.nn.LayerNorm, eps=1e-6), norm_pix_loss=True,
        )  # fmt: skip
    model.to(device).train()
    own = ours(shape, device)
    difference = _compare_mae(model, own, shape, device)
    images = own.inputs["images"]
    optimizer = torch.optim.AdamW(_decayed(model, 0.05), lr=RATE, betas=(0.9, 0.95), fused=fused or None)

    def loss_of() -> torch.Tensor:
        loss = model(images, mask_ratio=0.75)[0]
        loss.item()
        return loss

    return Peer(_step(loss_of, optimizer, device), _count(model), difference, (images,))


@torch.no_grad()
def _compare_mae(model: Any, own: Ours, shape: MAEShape, device: torch.device) -> float:
    """Both losses at our weights and one mask."""
    renamed = {
        "backbone.vit.": "", "embed.": "decoder_embed.", "blocks.": "decoder_blocks.", "norm.": "decoder_norm.",
        "pred.": "decoder_pred.",
    }  # fmt: skip
    state = {}
    for name, value in own.objective.state_dict().items():
        before = next((b for b in renamed if name.startswith(b)), "")
        state[renamed.get(before, "") + name.removeprefix(before)] = value
    wrong = model.load_state_dict(state, strict=False)
    assert not wrong.unexpected_keys and wrong.missing_keys == ["decoder_pos_embed"], wrong
    patches, images = shape.net.patches(), own.inputs["images"]
    torch.manual_seed(7)
    mask = random_mask(torch.rand(shape.batch, patches, device=device), kept_patches(patches, 0.75))
    torch.manual_seed(7)
    theirs = model(images, mask_ratio=0.75)[0]
    drawn = {"images": images, "keep_ids": mask.keep_ids, "mask_ids": mask.mask_ids}
    return _same(own.objective(drawn).loss, theirs)


def _transformers(shape: MAEShape, device: torch.device, *, fused: bool) -> Peer:
    package, net, (width, depth, heads) = _package("transformers"), shape.net, shape.decoder
    torch.manual_seed(0)
    config = package.ViTMAEConfig(
        hidden_size=net.width, num_hidden_layers=net.depth, num_attention_heads=net.heads,
        intermediate_size=4 * net.width, image_size=net.size, patch_size=net.patch, decoder_hidden_size=width,
        decoder_num_hidden_layers=depth, decoder_num_attention_heads=heads, decoder_intermediate_size=4 * width,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, mask_ratio=0.75, norm_pix_loss=True,
    )  # fmt: skip
    model = package.ViTMAEForPreTraining(config).to(device).train()
    images = ours(shape, device).inputs["images"]
    optimizer = torch.optim.AdamW(_decayed(model, 0.05), lr=RATE, betas=(0.9, 0.95), fused=fused or None)
    return Peer(_step(lambda: model(pixel_values=images).loss, optimizer, device), _count(model), None)


def _lightly(shape: MAEShape, device: torch.device, *, fused: bool) -> Peer:
    import timm

    _package("lightly")
    modules, tools = _package("lightly.models.modules"), _package("lightly.models.utils")
    net, (width, depth, heads) = shape.net, shape.decoder
    torch.manual_seed(0)
    vit: Any = timm.create_model(
        "vit_base_patch16_224", img_size=net.size, patch_size=net.patch, embed_dim=net.width, depth=net.depth,
        num_heads=net.heads, num_classes=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoder = modules.MaskedVisionTransformerTIMM(vit=vit)
        decoder = modules.MAEDecoderTIMM(
            num_patches=net.patches(), patch_size=net.patch, embed_dim=net.width, decoder_embed_dim=width,
            decoder_depth=depth, decoder_num_heads=heads,
        )  # fmt: skip
    model = torch.nn.ModuleList([encoder, decoder]).to(device).train()
    images, size = ours(shape, device).inputs["images"], (shape.batch, net.patches() + 1)
    optimizer = torch.optim.AdamW(_decayed(model, 0.05), lr=RATE, betas=(0.9, 0.95), fused=fused or None)

    def loss_of() -> torch.Tensor:
        keep, hide = tools.random_token_mask(size=size, mask_ratio=0.75, device=device)
        seen = decoder.embed(encoder.encode(images=images, idx_keep=keep))
        tokens = tools.repeat_token(decoder.mask_token, size)
        tokens = decoder.decode(tools.set_at_index(tokens, keep, seen.type_as(tokens)))
        predicted = decoder.predict(tools.get_at_index(tokens, hide))
        wanted = tools.get_at_index(tools.patchify(images, net.patch), hide - 1)
        return torch.nn.functional.mse_loss(predicted, wanted)

    return Peer(_step(loss_of, optimizer, device), _count(model), None)


def _official_dino(shape: DINOShape, checkout: str | None, device: torch.device, *, fused: bool) -> Peer:
    _checkout(checkout, "--official_dino")
    warnings.simplefilter("ignore")
    main, utils, vits = (importlib.import_module(name) for name in ("main_dino", "utils", "vision_transformer"))
    if not torch.distributed.is_initialized():  # their centre is always reduced over processes
        place = Path(tempfile.mkdtemp()) / "store"
        backend = "nccl" if device.type == "cuda" else "gloo"
        torch.distributed.init_process_group(backend, init_method=place.as_uri(), rank=0, world_size=1)
    torch.manual_seed(0)
    net = shape.net

    def branch(drop_path: float) -> torch.nn.Module:
        backbone = vits.VisionTransformer(
            img_size=[net.size], patch_size=net.patch, embed_dim=net.width, depth=net.depth, num_heads=net.heads,
            qkv_bias=True, norm_layer=partial(torch.nn.LayerNorm, eps=1e-6), drop_path_rate=drop_path,
        )  # fmt: skip
        head = vits.DINOHead(net.width, shape.out_dim, use_bn=False, norm_last_layer=True)
        return utils.MultiCropWrapper(backbone, head).to(device)

    student, teacher = branch(shape.drop_path).train(), branch(0.0).train()
    teacher.requires_grad_(False)
    loss = main.DINOLoss(shape.out_dim, 2 + shape.local_crops, 0.04, 0.04, 0, 100).to(device)
    own = ours(replace(shape, drop_path=0.0), device)
    views = [view.contiguous() for name in ("globals", "locals") if name in own.inputs
             for view in own.inputs[name].unbind(1)]  # fmt: skip
    difference = _compare_dino(student, teacher, loss, views, own)
    optimizer = torch.optim.AdamW(utils.get_params_groups(student), lr=RATE, weight_decay=0.04, fused=fused or None)

    def step(mark: Mark) -> torch.Tensor:
        with autocast(device):
            value = loss(student(views), teacher(views[:2]), 10)
        seen = value.detach()
        seen.item()
        mark("forward")
        optimizer.zero_grad()
        value.backward()
        mark("backward")
        utils.clip_gradients(student, 3.0)
        utils.cancel_gradients_last_layer(10, student, 1)
        mark("clip")
        optimizer.step()
        mark("optimiser")
        with torch.no_grad():
            for now, kept in zip(student.parameters(), teacher.parameters(), strict=True):
                kept.data.mul_(0.996).add_((1 - 0.996) * now.detach().data)
        mark("averages")
        return seen

    return Peer(step, _count(student), difference, tuple(views))


@torch.no_grad()
def _compare_dino(student: Any, teacher: Any, loss: Any, views: list[torch.Tensor], own: Ours) -> float:
    """Both losses at our weights, without positions (theirs are resampled otherwise) and stochastic depth."""
    renamed = {"backbone.vit.": "backbone.", "head.direction": "head.last_layer.weight_v",
               "head.gain": "head.last_layer.weight_g"}  # fmt: skip
    branch: Any = own.objective.get_submodule("student")
    branch.backbone.vit.pos_embed.zero_()
    own.objective.get_submodule("teacher").load_state_dict(branch.state_dict())
    state = {}
    for name, value in branch.state_dict().items():
        before = next((b for b in renamed if name.startswith(b)), "")
        state[renamed.get(before, "") + name.removeprefix(before)] = value
    student.load_state_dict(state)
    teacher.load_state_dict(state)
    student.eval()
    theirs = loss(student(views), teacher(views[:2]), 10)
    student.train()
    loss.center.zero_()
    own.objective.begin_step(CLOCK)
    return _same(own.objective(own.inputs).loss, theirs)


def _timm(shape: SupervisedShape, device: torch.device, *, fused: bool) -> Peer:
    import timm
    from timm.optim._optim_factory import create_optimizer_v2

    net = shape.net
    model: Any = timm.create_model(
        "vit_base_patch16_224", img_size=net.size, patch_size=net.patch, embed_dim=net.width, depth=net.depth,
        num_heads=net.heads, num_classes=1000,
    ).to(device)  # fmt: skip
    own = ours(shape, device)
    images, targets = own.inputs["images"], own.inputs["targets"]
    with torch.no_grad():
        own.objective.get_submodule("net.head").get_parameter("weight").normal_(
            std=0.05
        )  # else every answer is uniform
        model.load_state_dict(_classifier_state(own.objective))
        difference = _same(own.objective(own.inputs).loss, torch.nn.functional.cross_entropy(model(images), targets))
    model.train()
    options: dict[str, Any] = {"fused": True} if fused else {}
    optimizer = create_optimizer_v2(model, opt="adamw", lr=RATE, weight_decay=0.05, betas=(0.9, 0.999), **options)

    def loss_of() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(images), targets)

    return Peer(_step(loss_of, optimizer, device), _count(model), difference)


def _classifier_state(objective: Objective) -> dict[str, torch.Tensor]:
    """Our classifier's weights by timm's names."""
    state = objective.get_submodule("net").state_dict()
    return {name.removeprefix("backbone.vit."): value for name, value in state.items()}
