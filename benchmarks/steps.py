"""One bare training step of this project on a fixed batch, as the loop takes it, and how much arithmetic it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from ssl_vit.configs import ModelConfig, ResolvedModel, ResolvedOptim
from ssl_vit.configs.networks import FAMILIES, resolve_model, wanted
from ssl_vit.core.masking import kept_patches, random_mask
from ssl_vit.core.randomness import Key, bits, make_key
from ssl_vit.data.constants import sent
from ssl_vit.methods.dino import ResolvedDINO
from ssl_vit.methods.mae import ResolvedMAE
from ssl_vit.methods.supervised import ResolvedSupervised
from ssl_vit.models.backbone import with_tokens
from ssl_vit.models.build import build_backbone, make_backbone, model_facts
from ssl_vit.models.stochastic_depth import linear_rates
from ssl_vit.objectives.base import Clock, Objective
from ssl_vit.objectives.dino import DINO
from ssl_vit.objectives.mae import MAE
from ssl_vit.objectives.supervised import Supervised
from ssl_vit.training.optim import clip_each, make_optimizer, parameter_groups
from ssl_vit.training.products import products_chosen, training_attention
from ssl_vit.views.training import drop_path_factors

from timing import Mark, Step

Inputs = dict[str, torch.Tensor]
CLOCK = Clock(100, 10**6, 10.0)
"""Late enough for DINO's last layer to be trained."""
RATE = 1e-5
"""Learning rate of every step here, ours and theirs."""


@dataclass(frozen=True)
class Net:
    """Sizes of a plain ViT with a class token."""

    name: str
    size: int
    patch: int
    width: int
    depth: int
    heads: int

    def patches(self, size: int | None = None) -> int:
        """Of an image of that many pixels a side."""
        return ((size or self.size) // self.patch) ** 2

    def config(self, positions: Any = "learnable") -> ResolvedModel:
        """As the builder reads it."""
        return ResolvedModel(
            "vit_base_patch16_224", self.size, self.patch, self.width, self.depth, self.heads, positions, "cls"
        )

    def flops(self, size: int | None = None) -> float:
        """Operations of a forward pass over a whole image."""
        patches = self.patches(size)
        return _blocks(patches + 1, self.width, self.depth) + 2 * patches * self.patch**2 * 3 * self.width


def _blocks(tokens: int, width: int, depth: int) -> float:
    return depth * (24.0 * tokens * width**2 + 4.0 * tokens**2 * width)


@dataclass(frozen=True)
class MAEShape:
    """An MAE of 75 % masked patches with normalised targets."""

    net: Net
    batch: int
    decoder: tuple[int, int, int]
    """Width, depth, heads."""

    def flops(self) -> float:
        """Operations of a training step per image: the whole decoder on all tokens, backward twice the forward pass."""
        net, (width, depth, _), patches = self.net, self.decoder, self.net.patches()
        seen, pixels = kept_patches(patches, 0.75) + 1, net.patch**2 * 3
        encoder = _blocks(seen, net.width, net.depth) + 2.0 * patches * pixels * net.width
        decoder = _blocks(patches + 1, width, depth) + 2.0 * seen * net.width * width
        return 3 * (encoder + decoder + 2.0 * (patches + 1) * width * pixels)


@dataclass(frozen=True)
class DINOShape:
    """Two crops of the network's size and some local ones, head 2048-2048-256."""

    net: Net
    batch: int
    out_dim: int
    local_crops: int
    local_size: int
    drop_path: float = 0.1

    def flops(self) -> float:
        """Operations of a training step per image: the student's views three times, the teacher's once."""
        net = self.net
        head = 2.0 * (net.width * 2048 + 2048 * 2048 + 2048 * 256 + 256 * self.out_dim)
        large, small = net.flops() + head, net.flops(self.local_size) + head
        return 3 * (2 * large + self.local_crops * small) + 2 * large


@dataclass(frozen=True)
class SupervisedShape:
    """A class token's linear classifier of 1,000 classes."""

    net: Net
    batch: int
    drop_path: float = 0.0
    average: float = 0.0
    """Decay of the weight average; 0 for none."""

    def flops(self) -> float:
        """Operations of a training step per image."""
        return 3 * (self.net.flops() + 2.0 * self.net.width * 1000)


Shape = MAEShape | DINOShape | SupervisedShape


class Ours(NamedTuple):
    """A step of ours and what it is made of."""

    step: Step
    objective: Objective
    inputs: Inputs


def compile_objective(objective: Objective, mode: str | None = None) -> Callable[[Inputs], Any]:
    """The objective's forward pass and its gradient, compiled."""
    compiled = torch.compile(objective, dynamic=False, mode=mode)

    def run(inputs: Inputs) -> Any:
        if mode == "reduce-overhead":  # the last step's CUDA graphs may be overwritten
            torch.compiler.cudagraph_mark_step_begin()
        return compiled(inputs)

    return run


@contextmanager
def _rounded_products() -> Iterator[None]:
    """What is left in single precision beside bf16 is multiplied with factors of 10 bits (TF32)."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def loop_settings(device: torch.device) -> Any:
    """What ``launch.join`` sets for its whole process, for our turns alone: theirs run as they come."""
    return products_chosen() if device.type == "cpu" else _rounded_products()


def in_loop_settings(step: Step, device: torch.device) -> Step:
    """A step of anybody's with what our loop sets: the library that multiplies, and attention that suits it.

    Under oneDNN torch's fused attention asks for thousands of tiny products, which made a step of theirs as slow as
    with MKL at half of oneDNN's speed; our loop gives other people's modules plain products there, and so do we here.
    """

    def run(mark: Mark) -> torch.Tensor:
        with loop_settings(device), training_attention("no") if device.type == "cpu" else nullcontext():
            return step(mark)

    return run


def autocast(device: torch.device, bf16: bool = False) -> Any:
    """bf16 on a GPU, single precision on a CPU; the same for ours and theirs."""
    return torch.autocast(device.type, torch.bfloat16) if bf16 or device.type == "cuda" else nullcontext()


def images_of(batch: int, size: int, device: torch.device) -> torch.Tensor:
    """Noise."""
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(0)).to(device)


def network(name: str, args: dict[str, Any], size: int) -> Any:
    """A backbone of ours by the name of its family and size, or of timm's by name and arguments."""
    if name not in FAMILIES:
        return make_backbone(name, args, img_size=size)
    model = ModelConfig(name)
    return build_backbone(resolve_model(model, size, model_facts(*wanted(model)), "px32"), 3)


def build(shape: Shape) -> Objective:
    """The objective with random weights."""
    torch.manual_seed(0)
    if isinstance(shape, MAEShape):
        backbone = with_tokens(build_backbone(shape.net.config("sincos"), 3), "MAE")
        return MAE(backbone, ResolvedMAE(0.75, True, *shape.decoder), freeze_positions=True)
    backbone = build_backbone(shape.net.config(), 3)
    if isinstance(shape, DINOShape):
        cfg = ResolvedDINO(out_dim=shape.out_dim, head_hidden=2048, head_bottleneck=256, teacher_temp=0.04,
                           warmup_teacher_temp=0.04, teacher_warmup=0.0, centring="mean", freeze_last_layer=0.0,
                           check_steps=10**9, drop_path=0.0)  # fmt: skip
        return DINO(backbone, cfg, pool="cls", batch_size=shape.batch)
    cfg = ResolvedSupervised("cls", mixup=0.0, cutmix=0.0, drop_path=shape.drop_path, ema_decay=shape.average)
    return Supervised(backbone, 1000, cfg)


def optimiser_options(shape: Shape) -> ResolvedOptim:
    """AdamW's, as the papers have them."""
    if isinstance(shape, DINOShape):
        return ResolvedOptim(lr=RATE, weight_decay=0.04, betas=(0.9, 0.999), base_lr=1e-3)
    return ResolvedOptim(
        lr=RATE, weight_decay=0.05, betas=(0.9, 0.95 if isinstance(shape, MAEShape) else 0.999), base_lr=1e-3
    )


def fixed_inputs(shape: Shape, device: torch.device) -> Inputs:
    """A batch that is there already."""
    net, batch = shape.net, shape.batch
    if isinstance(shape, DINOShape):
        views = {"globals": images_of(batch * 2, net.size, device).unflatten(0, (batch, 2))}
        if shape.local_crops:
            local = images_of(batch * shape.local_crops, shape.local_size, device)
            views["locals"] = local.unflatten(0, (batch, shape.local_crops))
        return views
    inputs = {"images": images_of(batch, net.size, device)}
    if isinstance(shape, SupervisedShape):
        targets = torch.full((batch, 1000), 1e-4)
        targets[torch.arange(batch), torch.arange(batch) % 1000] += 0.9
        inputs["targets"] = targets.to(device)
    return inputs


def bare_inputs(shape: Shape, device: torch.device) -> Callable[[], Inputs]:
    """What every step reads: a batch that is there already, and what is drawn anew."""
    fixed, draw, numbers = fixed_inputs(shape, device), drawer(shape, device), itertools.count()
    return lambda: fixed | draw(next(numbers))


def drawer(shape: Shape, device: torch.device) -> Callable[[int], Inputs]:
    """What a view draws and their forward passes draw themselves: masks, stochastic depth; by the step's number."""
    index, none = torch.arange(shape.batch), torch.zeros(shape.batch, dtype=torch.int64)

    def draw(number: int) -> Inputs:
        if isinstance(shape, MAEShape):
            patches = shape.net.patches()
            key = Key(*sent(torch.stack(make_key(number, "mask", none, index)), device))
            mask = random_mask(bits(key, patches), kept_patches(patches, 0.75))
            return {"keep_ids": mask.keep_ids, "mask_ids": mask.mask_ids}
        rates = linear_rates(shape.net.depth, shape.drop_path)
        if rates is None:
            return {}
        if isinstance(shape, SupervisedShape):
            return {"drop": sent(drop_path_factors(make_key(number, "drop", index), rates), device)}
        drops = {}
        for name, views in (("drop_globals", 2), ("drop_locals", shape.local_crops)):
            if views:
                words = (index.repeat_interleave(views), torch.arange(views).repeat(shape.batch))
                factors = drop_path_factors(make_key(number, name, *words), rates)
                drops[name] = sent(factors.unflatten(0, (shape.batch, views)), device)
        return drops

    return draw


def optimiser_of(objective: Objective, cfg: ResolvedOptim) -> torch.optim.Optimizer:
    """As the loop builds it."""
    groups = parameter_groups(
        objective.named_parameters(), weight_decay=cfg.weight_decay, decays_tokens=objective.decays_tokens
    )
    optimizer = make_optimizer(groups, cfg)
    for group in optimizer.param_groups:
        group["lr"] = RATE
    return optimizer


def ours(
    shape: Shape, device: torch.device, *, compiled: bool = False, mode: str | None = None, bf16: bool = False
) -> Ours:
    """A step of the loop, without logging; a CPU's is in single precision, or in bf16."""
    objective = build(shape).to(device).train()
    run = compile_objective(objective, mode) if compiled else objective
    made = step_of(objective, run, bare_inputs(shape, device), optimiser_options(shape), device, bf16)
    return Ours(made, objective, fixed_inputs(shape, device))


def step_of(
    objective: Objective, run: Callable[[Inputs], Any], inputs: Callable[[], Inputs], cfg: ResolvedOptim,
    device: torch.device, bf16: bool = False,
) -> Step:  # fmt: skip
    """What the loop does with a batch, with a mark after each part.

    Args:
        objective: What is trained.
        run: The objective itself, or compiled.
        inputs: Makes what it reads.
        cfg: Of the optimiser.
        device: Where all of it is.
        bf16: Whether matrices are multiplied so on a CPU, too.
    """
    optimizer = optimiser_of(objective, cfg)
    trained = [p for p in objective.parameters() if p.requires_grad]
    clips = isinstance(objective, DINO)

    def step(mark: Mark) -> torch.Tensor:
        objective.begin_step(CLOCK)
        batch = inputs()
        mark("draw")
        with autocast(device, bf16):
            loss = run(batch).loss
        mark("forward")
        loss.backward()
        mark("backward")
        objective.after_backward(CLOCK)
        if clips:
            clip_each(trained, 3.0)
            mark("clip")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mark("optimiser")
        objective.after_step(CLOCK)
        mark("averages")
        return loss.detach()

    return in_loop_settings(step, device)
