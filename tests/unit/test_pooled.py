"""Networks that give one vector per image: any timm model, at any size it can read, exported for plain timm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from ssl_vit.configs import ModelConfig, ResolvedFit, ResolvedModel, ResolvedOptim, networks
from ssl_vit.configs.presets import PRESETS
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import forget
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.classifier import Labelling, export_classifier, load_classifier
from ssl_vit.exports.timm_folder import export_backbone, load_backbone
from ssl_vit.methods import Facts
from ssl_vit.methods.supervised import ResolvedSupervised, SupervisedConfig, resolve_supervised
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import ModelFacts, adapt, build_backbone, check_sizes, make_backbone, model_facts, timm_args
from ssl_vit.models.heads import Classifier
from ssl_vit.models.pooled import PooledBackbone
from ssl_vit.objectives.base import Clock
from ssl_vit.objectives.supervised import Supervised
from ssl_vit.training import launch
from ssl_vit.training.optim import make_optimizer, restore
from ssl_vit.training.stepping import Stepper
from torch import Tensor, nn

SCALE = PixelScale((0.4, 0.5), (0.2, 0.3), 16)
SWIN = "swin_tiny_patch4_window7_224"
SIZES = {"resnet18": 32, "test_efficientnet": 32, "pvt_v2_b0": 64, SWIN: 64}
DISTILLED = "deit_tiny_distilled_patch16_224"
NARROW: dict[str, dict[str, Any]] = {
    SWIN: {"embed_dim": 24, "depths": [2, 1], "num_heads": [2, 4]},
    DISTILLED: {"embed_dim": 24, "depth": 1, "num_heads": 2},
}


def backbone(name: str, size: int = 32) -> PooledBackbone:
    torch.manual_seed(0)
    args = timm_args(ResolvedModel(name, size, pool="mean"), 2) | NARROW.get(name, {})
    made = make_backbone(name, args, img_size=size)
    assert isinstance(made, PooledBackbone)
    for buffer_name, buffer in made.named_buffers():  # as if it had been trained
        if buffer_name.endswith("running_var"):
            buffer.uniform_(0.5, 2)
    return made.eval()


@pytest.mark.parametrize("name", SIZES)
def test_plain_timm_loads_the_folder_and_gives_the_same_features(name: str, tmp_path: Path) -> None:
    model = backbone(name, SIZES[name])
    export_backbone(model, tmp_path / "run" / "backbone", SCALE, "mean", {"objective": "DINO"})
    theirs = timm.create_model(f"local-dir:{tmp_path / 'run' / 'backbone'}", pretrained=True).eval()
    found = load_backbone(str(tmp_path / "run"))
    images = torch.randn(2, 2, SIZES[name], SIZES[name])
    with torch.no_grad():
        features = model.forward_pooled(images, pool="mean")
        assert (theirs(images) - features).abs().max() <= 1e-6
        assert torch.equal(found.backbone.eval().forward_pooled(images, pool="mean"), features)
    assert (found.pool, found.size, found.scale) == ("mean", SIZES[name], SCALE)
    assert theirs.pretrained_cfg["input_size"] == (2, SIZES[name], SIZES[name])
    random = found.with_random_weights(7)
    first = next(iter(model.timm_state()))
    assert not torch.equal(random.timm_state()[first], model.timm_state()[first])


@pytest.mark.parametrize("name", SIZES)
def test_the_layout_of_channels_changes_rounding_alone(name: str, tmp_path: Path) -> None:
    plain, together = backbone(name, SIZES[name]).train(), backbone(name, SIZES[name]).train()
    together.load_timm_state(plain.timm_state())
    together.keep_channels_together()
    assert any(w.ndim == 4 and w.stride(1) == 1 and w.shape[2] > 1 for w in together.parameters())
    images = torch.randn(4, 2, SIZES[name], SIZES[name])
    found = [model.forward_pooled(images, pool="mean") for model in (plain, together)]
    assert torch.allclose(*found, rtol=1e-3, atol=1e-4)
    for features in found:
        features.square().sum().backward()
    for one, other in zip(plain.parameters(), together.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        assert (one.grad - other.grad).norm() <= 1e-2 * one.grad.norm() + 1e-4
    export_backbone(together, tmp_path / "run" / "backbone", SCALE, "mean", {"objective": "DINO"})
    stored = load_backbone(str(tmp_path / "run")).backbone.timm_state()
    assert all(torch.equal(stored[key], value) for key, value in together.timm_state().items())


@pytest.mark.parametrize(("asked", "together"), [(None, False), (False, False), (True, True)])
def test_the_loop_lays_channels_out_as_it_is_told(asked: bool | None, together: bool) -> None:
    objective = Supervised(
        backbone("test_resnet"), 3, ResolvedSupervised("mean", drop_path=0.0, ema_decay=0.0, mixup=0.0, cutmix=0.0)
    )
    stepper = Stepper(
        objective,
        fit=ResolvedFit(channels_last=asked, epochs=1.0, min_steps=0, batch_size=8),
        optim=ResolvedOptim(lr=1e-3, base_lr=1e-3),
        accelerator=launch.join("fp32"),
    )
    stepper.prepare(1)
    wide = [w for w in objective.parameters() if w.ndim == 4 and min(w.shape[1:]) > 1]
    assert wide
    assert {w.stride(1) == 1 for w in wide} == {together}


@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False), (True, True)])
def test_a_run_continues_in_another_layout(before: bool, after: bool) -> None:
    """Two steps, a restart, two more; against four steps in one go with the same gradients."""

    def begin(together: bool) -> tuple[PooledBackbone, torch.optim.Optimizer]:
        model = backbone("test_resnet")
        if together:
            model.keep_channels_together()
        optimizer = make_optimizer([{"params": list(model.parameters())}], ResolvedOptim(base_lr=1e-3))
        optimizer.param_groups[0]["lr"] = 1e-2
        return model, optimizer

    def take(model: PooledBackbone, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            for i, weight in enumerate(model.parameters()):
                drawn = torch.randn(weight.shape, generator=torch.Generator().manual_seed(100 * i + step))
                weight.grad = torch.empty_like(weight).copy_(drawn)
            optimizer.step()

    whole, first, again = begin(False), begin(before), begin(after)
    take(*whole, range(4))
    take(*first, range(2))
    again[0].load_state_dict(first[0].state_dict())
    restore(again[1], first[1].state_dict())
    take(*again, range(2, 4))
    for one, other in zip(whole[0].parameters(), again[0].parameters(), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["test_resnet", "test_efficientnet", "test_convnext", DISTILLED])
def test_plain_timm_classifies_as_the_exported_classifier(name: str, tmp_path: Path) -> None:
    net = Classifier(backbone(name), 3, pool="mean").eval()
    torch.nn.init.normal_(net.head.weight)  # pyright: ignore[reportArgumentType]
    labelling = Labelling("class", ("cat", "dog", "owl"), None)
    assert export_classifier(net, tmp_path / "classifier", SCALE, labelling, {})
    theirs = timm.create_model(f"local-dir:{tmp_path / 'classifier'}", pretrained=True).eval()
    again = load_classifier(str(tmp_path / "classifier"))
    images = torch.randn(2, 2, 32, 32)
    with torch.no_grad():
        ours = net(images)
        assert (theirs(images) - ours).abs().max() <= 1e-5
        assert torch.equal(again.net.eval()(images), ours)


def test_a_head_that_timm_makes_otherwise_is_not_exported(tmp_path: Path) -> None:
    net = Classifier(backbone("levit_128s", 64), 3, pool="mean")  # timm normalises before its classifier
    assert not export_classifier(net, tmp_path / "classifier", SCALE, Labelling("class", ("a", "b", "c"), None), {})
    assert not (tmp_path / "classifier").exists()


def on_meta(name: str, args: dict[str, Any], size: int) -> Backbone:
    """A network without numbers."""
    with torch.device("meta"):
        return make_backbone(name, args, img_size=size)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("resnet18", (64, 32)), ("swin_tiny_patch4_window7_224", (224, 96)), ("vit_tiny_patch16_224", (64, 32))],
)
def test_several_sizes_in_one_network(name: str, sizes: tuple[int, int]) -> None:
    facts = model_facts(name)
    cfg = networks.resolve_model(ModelConfig(name, sizes[0]), 224, facts)
    check_sizes(on_meta(name, timm_args(cfg, 3), sizes[0]), sizes[0], {"local": sizes[1]})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("beit_base_patch16_224", r"beit_base_patch16_224 cannot read local crops of 96 pixels beside those of 224"),
        ("maxvit_tiny_tf_224", r"crops of 96 pixels .*--crops\.local_crops 0, --crops\.local_size 224"),
        ("vit_base_patch14_dinov2", r"crops of 96 pixels which are no multiple of its patches of 14"),
    ],
)
def test_one_size_only(name: str, words: str) -> None:
    args = {"img_size": 224} if "vit_base" in name else {}
    with pytest.raises(UserError, match=words):
        check_sizes(on_meta(name, args, 224), 224, {"local": 96})


def test_facts_of_other_models() -> None:
    resnet, beit = model_facts("resnet18"), model_facts("beit_base_patch16_224")
    assert (resnet.img_size, resnet.patch_size, resnet.width, resnet.depth) == (224, 32, 512, 8)
    assert (resnet.plain, resnet.class_token, resnet.flexible, beit.flexible) == (False, False, True, False)
    assert model_facts("swin_tiny_patch4_window7_224").flexible


@pytest.mark.parametrize(
    ("name", "side", "size"),
    [
        ("resnet18", 8, 32),
        ("resnet18", 96, 96),
        ("resnet18", 500, 224),
        ("beit_base_patch16_224", 32, 224),
        (DISTILLED, 32, 224),
    ],
)
def test_sizes_from_the_images(name: str, side: int, size: int) -> None:
    found = networks.resolve_model(ModelConfig(name), side, model_facts(name))
    assert found == ResolvedModel(name, size, pool="mean")
    assert networks.resolve_model(found, side, model_facts(name)) == found  # config.yaml repeats the run
    assert networks.resolve_model(ModelConfig(name, 48), side, model_facts(name)).img_size == 48


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"patch_size": 4}, r"--model\.patch_size 4 is for plain ViTs; resnet18"),
        ({"width": 64}, r"--model\.width 64"),
        ({"positions": "learnable"}, r"--model\.positions learnable"),
        ({"pool": "cls"}, r"--model\.pool cls"),
    ],
)
def test_options_of_plain_vits(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        networks.resolve_model(ModelConfig("resnet18", **options), 32, model_facts("resnet18"))


def test_sizes_that_cannot_be_read() -> None:
    with pytest.raises(UserError, match=r"inception_v3 does not make one vector .* 32 x 32 .*--model\.img_size 96, or"):
        build_backbone(ResolvedModel("inception_v3", 32, pool="mean"), 3)


def test_what_gives_no_vector() -> None:
    class Twins(nn.Conv2d):
        pretrained_cfg, num_features = {"input_size": (3, 8, 8)}, 8

        def forward(self, input: Tensor) -> Any:
            pooled = super().forward(input).flatten(1)
            return pooled, pooled

    with pytest.raises(UserError, match="twins does not make one vector of an image of 8 x 8 pixels"):
        PooledBackbone(Twins(3, 8, 8), "twins", {}, 8)


def test_options_of_training_on_labels(capsys: pytest.CaptureFixture[str]) -> None:
    forget()
    shape = ModelFacts(32, 32, 64, 4, 1, False, plain=False)
    facts, preset = Facts(100, ResolvedModel("test_resnet", 32, pool="mean"), shape), PRESETS["px32"]
    found = resolve_supervised(SupervisedConfig(), facts, preset)
    assert (found.pool, found.drop_path) == ("mean", 0.1)
    found = resolve_supervised(SupervisedConfig(), facts._replace(network=shape._replace(drop_path=False)), preset)
    assert found.drop_path == 0.0
    assert "no place for stochastic depth (--supervised.drop_path)" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"--supervised\.pool mean_prenorm needs the tokens"):
        resolve_supervised(SupervisedConfig("mean_prenorm"), facts, preset)


def test_fine_tuning_at_another_size() -> None:
    model = backbone("test_resnet")
    larger = adapt(model, img_size=64)
    assert isinstance(larger, PooledBackbone)
    assert (larger.img_size, model.img_size) == (64, 32)
    with torch.no_grad():
        images = torch.randn(1, 2, 64, 64)
        assert torch.equal(larger.forward_pooled(images, pool="mean"), model.forward_pooled(images, pool="mean"))
    with pytest.raises(UserError, match=r"--model\.patch_size 4 is for plain ViTs"):
        adapt(model, patch_size=4)
    with torch.device("meta"):
        fixed = build_backbone(ResolvedModel("mixer_s32_224", 224, pool="mean"), 3)
    with pytest.raises(UserError, match=r"--model\.img_size 96: this mixer_s32_224 cannot read"):
        adapt(fixed, img_size=96)


def test_running_statistics_are_averaged_as_weights_are() -> None:
    objective = Supervised(
        backbone("test_resnet"), 3, ResolvedSupervised("mean", drop_path=0.0, ema_decay=0.5, mixup=0.0, cutmix=0.0)
    )
    assert objective.average is not None
    objective.train()
    name = "backbone.model.layer1.0.bn2.running_var"
    kept = objective.average.get_buffer(name).clone()
    for step in range(4):
        objective({"images": torch.randn(4, 2, 32, 32), "targets": torch.rand(4, 3)})
        objective.after_step(Clock(step, 4, 1.0))
        decay = min(0.5, (1 + step) / (10 + step))
        kept = decay * kept + (1 - decay) * objective.net.get_buffer(name)
    assert torch.allclose(objective.average.get_buffer(name), kept)
    assert not torch.allclose(objective.net.get_buffer(name), kept)
