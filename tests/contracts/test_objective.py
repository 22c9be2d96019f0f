"""What every objective promises: determinism, gradients everywhere, an exported backbone that was trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ssl_vit.configs import ResolvedModel
from ssl_vit.core.errors import UserError
from ssl_vit.core.masking import random_mask
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.classifier import Labelling, TrainedClassifier
from ssl_vit.exports.timm_folder import Exported
from ssl_vit.methods.beit import ResolvedBEiT
from ssl_vit.methods.dino import ResolvedDINO
from ssl_vit.methods.distill import DistillConfig
from ssl_vit.methods.lejepa import ResolvedLeJEPA
from ssl_vit.methods.mae import ResolvedMAE
from ssl_vit.methods.supervised import ResolvedSupervised
from ssl_vit.methods.taught import TaughtConfig
from ssl_vit.models.backbone import Backbone, TokenBackbone
from ssl_vit.models.build import build_backbone
from ssl_vit.models.heads import Classifier
from ssl_vit.objectives.base import Clock, Objective
from ssl_vit.objectives.beit import BEiT
from ssl_vit.objectives.diet import DIET
from ssl_vit.objectives.dino import DINO
from ssl_vit.objectives.distill import Distillation
from ssl_vit.objectives.lejepa import LeJEPA
from ssl_vit.objectives.mae import MAE, images_from_patches, normalise_targets, pixel_patches
from ssl_vit.objectives.probe import AttentiveHead, FrozenProbe, linear_head
from ssl_vit.objectives.simmim import SimMIM
from ssl_vit.objectives.supervised import Supervised
from ssl_vit.objectives.taught import Taught, order_of_classes
from torch import Tensor, nn

MODEL = ResolvedModel("vit_tiny_patch16_224", 16, 4, 24, 3, 2, "sincos", "mean")


def backbone() -> TokenBackbone:
    torch.manual_seed(1)
    return build_backbone(MODEL, 2)


def mae() -> tuple[Objective, dict[str, Tensor]]:
    objective = MAE(backbone(), ResolvedMAE(0.5, True, 16, 2, 2))
    mask = random_mask(torch.rand(6, 16), 8)
    inputs = {"images": torch.randn(6, 2, 16, 16), "keep_ids": mask.keep_ids, "mask_ids": mask.mask_ids}
    return objective.double(), {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}


def supervised(pool: str = "cls", hidden: int = 0, decay: float = 0.9) -> tuple[Objective, dict[str, Tensor]]:
    cfg = ResolvedSupervised(pool, 0.1, 0.0, 0.0, 0.1, decay, hidden)  # pyright: ignore[reportArgumentType]
    objective = Supervised(backbone(), 5, cfg).double()
    targets = torch.softmax(torch.randn(6, 5, dtype=torch.float64), 1)
    return objective, {"images": torch.randn(6, 2, 16, 16, dtype=torch.float64), "targets": targets}


def of_kind(kind: str) -> tuple[Objective, dict[str, Tensor]]:
    cfg = ResolvedSupervised("cls", 0.1, 0.0, 0.0, 0.1, 0.9, 0)
    objective = Supervised(backbone(), 5, cfg, kind).double()  # pyright: ignore[reportArgumentType]
    targets = torch.rand(6, 5, dtype=torch.float64) if kind == "multilabel" else torch.randn(6, 5, dtype=torch.float64)
    return objective, {"images": torch.randn(6, 2, 16, 16, dtype=torch.float64), "targets": targets}


def probe(head: str, kind: str = "class") -> tuple[Objective, dict[str, Tensor]]:
    torch.manual_seed(2)
    made = AttentiveHead(24, 5, 4) if head == "attentive" else linear_head(48, 5, standardise=head == "mae")
    reads = "tokens" if head == "attentive" else "cls+mean"
    objective = FrozenProbe(backbone(), made, reads=reads, kind=kind).double()  # pyright: ignore[reportArgumentType]
    labels = {"class": torch.arange(6) % 5, "multilabel": (torch.rand(6, 5) < 0.5).double(),
              "regression": torch.randn(6, 5).double()}  # fmt: skip
    return objective, {"images": torch.randn(6, 2, 16, 16, dtype=torch.float64), "labels": labels[kind]}


def dino(**changes: object) -> tuple[Objective, dict[str, Tensor]]:
    cfg = ResolvedDINO(out_dim=12, head_hidden=16, head_bottleneck=8, teacher_temp=0.07, warmup_teacher_temp=0.04,
                       teacher_warmup=0.0, freeze_last_layer=0.0, on_collapse="warn", drop_path=0.0,
                       **{"centring": "mean", **changes})  # pyright: ignore[reportArgumentType] # fmt: skip
    objective = DINO(backbone(), cfg, pool="cls", batch_size=6).double()
    inputs = {"globals": torch.randn(6, 2, 2, 16, 16).double(), "locals": torch.randn(6, 2, 2, 8, 8).double()}
    return objective, inputs


def simmim(net: Backbone | None = None) -> tuple[Objective, dict[str, Tensor]]:
    objective = SimMIM(net or backbone())
    size, side = objective.backbone.img_size, 4
    mask = random_mask(torch.rand(6, side * side), 6)
    hidden = torch.zeros(6, side * side, dtype=torch.bool).scatter(1, mask.mask_ids, True).view(6, side, side)
    return objective.double(), {"images": torch.randn(6, 2, size, size).double(), "hidden": hidden}


def lejepa(net: Backbone | None = None, size: int = 16) -> tuple[Objective, dict[str, Tensor]]:
    net, pool = net or backbone(), "mean" if net else "cls"
    torch.manual_seed(3)
    cfg = ResolvedLeJEPA(weight=0.1, out_dim=5, head_hidden=12, head_layers=2, slices=32, drop_path=0.0)
    objective = LeJEPA(net, cfg, pool=pool, seed=0).double()
    inputs = {"globals": torch.randn(6, 2, 2, size, size), "locals": torch.randn(6, 2, 2, size // 2, size // 2)}
    return objective, {name: value.double() for name, value in inputs.items()}


def diet(net: Backbone | None = None, size: int = 16) -> tuple[Objective, dict[str, Tensor]]:
    net, pool = net or backbone(), "mean" if net else "cls"
    torch.manual_seed(3)
    objective = DIET(net, classes=9, smoothing=0.8, pool=pool).double()
    return objective, {"images": torch.randn(6, 2, size, size).double(), "own": torch.tensor([3, 1, 0, 8, 3, 5])}


def distill(net: Backbone | None = None, size: int = 16) -> tuple[Objective, dict[str, Tensor]]:
    net, pool, teacher = net or backbone(), "mean" if net else "cls", resnet()
    torch.manual_seed(3)
    objective = Distillation(net, teacher, DistillConfig(), pool=pool, taught_pool="mean").double()
    inputs = {"images": torch.randn(6, 2, size, size), "taught": torch.randn(6, 2, 32, 32)}
    return objective, {name: value.double() for name, value in inputs.items()}


def beit() -> tuple[Objective, dict[str, Tensor]]:
    objective = BEiT(backbone(), ResolvedBEiT(0.4, 5, True)).double()
    torch.manual_seed(4)
    objective.words.normal_()
    hidden = random_mask(torch.rand(6, 16), 10).mask_ids
    return objective, {"images": torch.randn(6, 2, 16, 16).double(), "mask_ids": hidden}


def taught(weight: float = 0.5, token_weight: float = 0.5) -> tuple[Objective, dict[str, Tensor]]:
    net, names = resnet(), tuple("abcde")
    torch.manual_seed(3)
    head = Classifier(net, 5, pool="mean")
    nn.init.normal_(head.head.weight)  # pyright: ignore[reportArgumentType]
    teacher = TrainedClassifier(
        head, Exported(net, PixelScale((0.5,) * 2, (0.2,) * 2, 8), "mean", 32, {}, "", Path()),
        Labelling("class", names, None),
    )  # fmt: skip
    student, cfg = backbone(), TaughtConfig("RUN", "soft", weight, 2.0, token_weight)
    loss = ResolvedSupervised("mean", 0.1, 0.0, 0.0, 0.0, 0.9)
    objective = Taught(student, 5, loss, cfg, teacher, order_of_classes(teacher.labelling, names, "class", "RUN"))
    inputs = {"images": torch.randn(6, 2, 16, 16), "taught": torch.randn(6, 2, 32, 32),
              "targets": torch.softmax(torch.randn(6, 5), 1)}  # fmt: skip
    return objective.double(), {name: value.double() for name, value in inputs.items()}


def resnet() -> Backbone:
    torch.manual_seed(1)
    return build_backbone(ResolvedModel("test_resnet", 32, pool="mean"), 2)


PROBES: dict[str, Callable[[], tuple[Objective, dict[str, Tensor]]]] = {
    "probe-mae": lambda: probe("mae"),
    "probe-dino": lambda: probe("dino"),
    "probe-attentive": lambda: probe("attentive"),
    "probe-multilabel": lambda: probe("dino", "multilabel"),
    "probe-regression": lambda: probe("dino", "regression"),
}
"""What they export is never trained, and a batch behind batch normalisation is more than its halves."""

MAKERS: dict[str, Callable[[], tuple[Objective, dict[str, Tensor]]]] = {
    "mae": mae,
    "supervised": supervised,
    "supervised-mean_prenorm": lambda: supervised("mean_prenorm"),
    "supervised-hidden": lambda: supervised("mean", hidden=7),
    "supervised-multilabel": lambda: of_kind("multilabel"),
    "supervised-regression": lambda: of_kind("regression"),
    "dino": dino,
    "dino-free-gain": lambda: dino(norm_last_layer=False),
    "dino-in-chunks": lambda: dino(loss_chunk=2),
    "supervised-without-average": lambda: supervised(decay=0.0),
    "simmim": simmim,
    "diet": diet,
    "distill": distill,
    "beit": beit,
    "taught": taught,
    "taught-hard": lambda: taught(1.0, 0.0),
}


def convolutional() -> tuple[Objective, dict[str, Tensor]]:
    objective = Supervised(
        resnet(), 5, ResolvedSupervised("mean", drop_path=0.0, ema_decay=0.9, mixup=0.0, cutmix=0.0)
    ).double()
    targets = torch.softmax(torch.randn(6, 5, dtype=torch.float64), 1)
    return objective, {"images": torch.randn(6, 2, 32, 32, dtype=torch.float64), "targets": targets}


def convolutional_dino() -> tuple[Objective, dict[str, Tensor]]:
    cfg = ResolvedDINO(out_dim=12, head_hidden=16, head_bottleneck=8, teacher_temp=0.07, warmup_teacher_temp=0.04,
                       teacher_warmup=0.0, freeze_last_layer=0.0, on_collapse="warn", drop_path=0.0,
                       centring="mean")  # fmt: skip
    views = {"globals": torch.randn(6, 2, 2, 32, 32).double(), "locals": torch.randn(6, 2, 2, 16, 16).double()}
    return DINO(resnet(), cfg, pool="mean", batch_size=6).double(), views


NORMED: dict[str, Callable[[], tuple[Objective, dict[str, Tensor]]]] = {
    "supervised-resnet": convolutional,
    "dino-resnet": convolutional_dino,
    "simmim-resnet": lambda: simmim(resnet()),
    "lejepa": lejepa,
    "lejepa-resnet": lambda: lejepa(resnet(), 32),
    "diet-resnet": lambda: diet(resnet(), 32),
    "distill-resnet": lambda: distill(resnet(), 32),
}
"""A batch behind batch normalisation, or under a loss on its distribution, is more than its halves."""

ALL = MAKERS | PROBES | NORMED


def warm(objective: Objective) -> None:
    """Leaves the special start (heads at zero) behind, so that gradients flow everywhere."""
    with torch.no_grad():
        for p in objective.parameters():
            if p.requires_grad:
                p.add_(0.05 * torch.randn_like(p))


@pytest.mark.parametrize("name", ALL)
def test_forward_is_deterministic(name: str) -> None:
    objective, inputs = ALL[name]()
    objective.train()
    first, second = objective(inputs).loss, objective(inputs).loss
    assert first.shape == ()
    assert torch.equal(first, second)
    assert torch.isfinite(first)


@pytest.mark.parametrize("name", ALL)
def test_every_trainable_parameter_gets_a_gradient(name: str) -> None:
    objective, inputs = ALL[name]()
    warm(objective)
    objective(inputs).loss.backward()
    for parameter_name, parameter in objective.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.abs().max() > 0, parameter_name


@pytest.mark.parametrize("name", MAKERS)
def test_loss_of_a_batch_is_the_mean_of_its_halves(name: str) -> None:
    objective, inputs = MAKERS[name]()
    whole = objective(inputs).loss
    halves = [objective({k: v[s] for k, v in inputs.items()}).loss for s in (slice(0, 3), slice(3, 6))]
    assert (whole - sum(halves) / 2).abs() <= 1e-12


@pytest.mark.parametrize("name", [*MAKERS, *NORMED])
def test_training_reduces_the_loss_and_changes_what_is_exported(name: str) -> None:
    objective, inputs = ALL[name]()
    before = {k: v.clone() for k, v in objective.exported().state_dict().items()}
    optimizer = torch.optim.AdamW([p for p in objective.parameters() if p.requires_grad], lr=3e-3)
    first = float(objective(inputs).loss.detach())
    for step in range(30):
        objective.begin_step(Clock(step, 30, 1.0))
        objective(inputs).loss.backward()
        objective.after_backward(Clock(step, 30, 1.0))
        optimizer.step()
        optimizer.zero_grad()
        objective.after_step(Clock(step, 30, 1.0))
    assert float(objective(inputs).loss.detach()) < first
    after = objective.exported().state_dict()
    assert any(not torch.equal(before[k], after[k]) for k in before)


@pytest.mark.parametrize("name", ALL)
def test_state_survives_saving(name: str) -> None:
    objective, inputs = ALL[name]()
    warm(objective)
    other, _ = ALL[name]()
    other.load_state_dict(objective.state_dict())
    assert torch.equal(objective(inputs).loss, other(inputs).loss)


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_learns_and_leaves_its_backbone_alone(name: str) -> None:
    objective, inputs = PROBES[name]()
    before = {k: v.clone() for k, v in objective.exported().state_dict().items()}
    trained = [p for p in objective.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.05, momentum=0.9)
    objective.train()
    assert not any(part.training for part in objective.exported().modules())
    losses = []
    for _ in range(20):
        loss = objective(inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert all(torch.equal(before[k], v) for k, v in objective.exported().state_dict().items())
    assert all(p.grad is None for p in objective.exported().parameters())


def test_mae_freezes_sincos_and_trains_learnable_positions() -> None:
    fixed = MAE(backbone(), ResolvedMAE(0.5, True, 16, 1, 2), freeze_positions=True)
    free = MAE(backbone(), ResolvedMAE(0.5, True, 16, 1, 2), freeze_positions=False)
    name = "backbone.vit.pos_embed"
    assert not dict(fixed.named_parameters())[name].requires_grad
    assert dict(free.named_parameters())[name].requires_grad


def test_fine_tuning_trains_positions_again() -> None:
    shared = backbone()
    MAE(shared, ResolvedMAE(0.5, True, 16, 1, 2), freeze_positions=True)
    assert dict(Supervised(shared, 3, ResolvedSupervised("cls", mixup=0.0, cutmix=0.0)).named_parameters())[
        "net.backbone.vit.pos_embed"
    ].requires_grad


def test_mae_parameter_count_of_vit_b() -> None:
    with torch.device("meta"):
        cfg = ResolvedModel("vit_base_patch16_224", 224, 16, 768, 12, 12, "learnable", "cls")
        objective = MAE(build_backbone(cfg, 3), ResolvedMAE(0.75, True, 512, 8, 16), freeze_positions=True)
    # The official count includes both position tables; ours keeps the decoder's as a buffer without class row.
    frozen = 197 * 768
    decoder_positions = 197 * 512
    assert sum(p.numel() for p in objective.parameters()) == 111_907_840 - decoder_positions
    assert sum(p.numel() for p in objective.parameters() if p.requires_grad) == 111_907_840 - decoder_positions - frozen
    assert 111_907_840 - decoder_positions - frozen == 111_655_680


def test_mae_loss_looks_at_hidden_patches_only() -> None:
    objective, inputs = mae()
    base = objective(inputs).loss
    images = inputs["images"].clone()
    patches = pixel_patches(images, 4)
    visible = inputs["keep_ids"][0, 0]
    changed = patches.clone()
    changed[0, visible] += 1.0
    # A change in a visible patch moves the prediction, but with the encoder blind to it the loss would not change:
    # so compare the targets that enter the loss directly.
    hidden = inputs["mask_ids"][:, :, None].expand(-1, -1, patches.shape[2])
    assert torch.equal(patches.gather(1, hidden), changed.gather(1, hidden))
    predicted = objective.decode(  # pyright: ignore[reportCallIssue]
        objective.encode(images, inputs["keep_ids"]),  # pyright: ignore[reportCallIssue]
        random_mask_of(inputs),
    )
    by_hand = (predicted - normalise_targets(patches.gather(1, hidden))).square().sum() / predicted.numel()
    assert (by_hand - base).abs() <= 1e-12


def random_mask_of(inputs: dict[str, Tensor]):
    from ssl_vit.core.masking import Mask

    return Mask(inputs["keep_ids"], inputs["mask_ids"])


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_patches_and_images_are_inverse(channels: int) -> None:
    images = torch.randn(2, channels, 12, 20)
    assert torch.equal(images_from_patches(pixel_patches(images, 4), (3, 5), channels), images)


def test_constant_patches_have_finite_targets() -> None:
    assert torch.isfinite(normalise_targets(torch.full((2, 3, 16), 0.7))).all()


def test_mae_refuses_a_backbone_that_cannot_drop_tokens() -> None:
    stubborn = backbone()
    stubborn.drops_tokens = False
    with pytest.raises(UserError, match="leave out patches"):
        MAE(stubborn, ResolvedMAE(0.5, True, 16, 1, 2))


def test_every_network_starts_from_the_same_initialisation() -> None:
    """MAE's encoder before its first step is the baseline's and the random-weights row's network, weight by weight."""
    plain = backbone()
    trained = MAE(backbone(), ResolvedMAE(0.5, True, 16, 1, 2), freeze_positions=True).backbone
    for a, b in zip(plain.parameters(), trained.parameters(), strict=True):
        assert torch.equal(a, b)
    weight = plain.get_parameter("vit.blocks.0.mlp.fc1.weight")
    bound = (6 / sum(weight.shape)) ** 0.5  # Xavier: uniform within this
    assert weight.abs().max() <= bound
    assert float(weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.1)


def test_weight_average_follows_its_recurrence() -> None:
    objective, _ = supervised(decay=0.5)
    assert isinstance(objective, Supervised)
    assert objective.average is not None
    kept = [p.clone() for p in objective.average.parameters()]
    for step in range(12):
        warm(objective)
        objective.after_step(Clock(step, 12, 1.0))
        decay = min(0.5, (1 + step) / (10 + step))
        now = list(objective.net.parameters())
        kept = [decay * a + (1 - decay) * b.detach() for a, b in zip(kept, now, strict=True)]
    for a, b in zip(kept, objective.average.parameters(), strict=True):
        assert (a - b).abs().max() <= 1e-12


def test_a_fresh_layernorm_replaces_the_final_one() -> None:
    objective, _ = supervised("mean_prenorm")
    trained = {n for n, p in objective.named_parameters() if p.requires_grad}
    assert "net.fc_norm.weight" in trained
    assert not any("vit.norm." in n for n in trained)


def test_losses_of_several_labels_and_of_numbers() -> None:
    for kind in ("multilabel", "regression"):
        objective, inputs = of_kind(kind)
        assert isinstance(objective, Supervised)
        warm(objective)
        outputs, targets = objective.net(inputs["images"]), inputs["targets"]
        if kind == "multilabel":
            p = 1 / (1 + (-outputs).exp())
            expected = -(targets * p.log() + (1 - targets) * (1 - p).log()).mean()
        else:
            expected = (outputs - targets).square().mean()
        assert (objective(inputs).loss - expected).abs() <= 1e-12


def test_a_teacher_with_batch_norm_keeps_running_statistics_of_its_own() -> None:
    """They follow its own passes over the global views; only parameters are averages of the student's."""
    objective, inputs = convolutional_dino()
    assert isinstance(objective, DINO)
    objective.train()
    before = {k: v.clone() for k, v in objective.teacher.state_dict().items() if "running" in k}
    objective.begin_step(Clock(0, 10, 1.0))
    objective(inputs)
    own, students = objective.teacher.state_dict(), objective.student.state_dict()
    assert before
    for name, value in before.items():
        assert not torch.equal(own[name], value), name
        assert not torch.equal(own[name], students[name]), name  # the student has seen local views too
