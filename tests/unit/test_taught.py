"""A teacher beside the labels: the loss against plain torch, two heads, places, and teachers that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import timm
import torch
import torch.nn.functional as F
from ssl_vit.configs import ModelConfig, ResolvedModel, parse
from ssl_vit.configs.cli import as_words, from_words
from ssl_vit.configs.networks import ModelFacts
from ssl_vit.configs.presets import PRESETS
from ssl_vit.core import notices
from ssl_vit.core.errors import UserError
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.classifier import Labelling, TrainedClassifier, export_classifier, load_classifier
from ssl_vit.exports.timm_folder import Exported
from ssl_vit.methods.method import Facts
from ssl_vit.methods.supervised import ResolvedSupervised
from ssl_vit.methods.taught import TaughtConfig, TaughtRecipe, resolve
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import build_backbone, make_backbone
from ssl_vit.models.heads import Classifier, has_distillation_token
from ssl_vit.objectives.base import Clock
from ssl_vit.objectives.taught import Taught, order_of_classes
from ssl_vit.script import check_options
from ssl_vit.training.forecast import network_of  # noqa: F401  (as a run imports it)
from torch import Tensor

CLASSES = Labelling("class", ("cat", "dog", "owl"), None)
LOSS = ResolvedSupervised("mean", 0.1, 0.0, 0.0, 0.0, 0.5)
FACTS = Facts(500, ResolvedModel("vit_tiny_patch16_224", 32, pool="mean"), ModelFacts(32, 4, 192, 12, 3))
SCALE = PixelScale((0.4, 0.5), (0.2, 0.3), 8)


def vit(size: int = 16, seed: int = 0) -> Backbone:
    torch.manual_seed(seed)
    return build_backbone(ResolvedModel("vit_tiny_patch16_224", size, 4, 16, 2, 2, "learnable", "mean"), 2)


def family(name: str, size: int = 16, **args: Any) -> Backbone:
    torch.manual_seed(0)
    sizes = {"img_size": size, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2, "in_chans": 2}
    return make_backbone(name, {**sizes, **args} if "resnet" not in name else {"in_chans": 2}, img_size=size)


def deit() -> Backbone:
    return family("deit_tiny_distilled_patch16_224", dynamic_img_size=True)


def teacher(
    net: Backbone | None = None, pool: Any = "mean", names: tuple[str, ...] = CLASSES.names
) -> TrainedClassifier:
    net = net or vit(seed=7)
    whole = Classifier(net, len(names), pool=pool).double()
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    exported = Exported(net, SCALE, "mean", net.img_size, {}, "hash", Path())
    return TrainedClassifier(whole, exported, CLASSES._replace(names=names))


def objective(net: Backbone, taught: TaughtConfig, of: TrainedClassifier | None = None, loss: Any = LOSS) -> Taught:
    of = of or teacher()
    order = order_of_classes(of.labelling, CLASSES.names, "class", "RUN")
    found = Taught(net, 3, loss, taught, of, order).double()
    with torch.no_grad():  # heads start at zero
        for name, parameter in found.named_parameters():
            if "average" not in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return found


def inputs(size: int = 16, taught: int = 16) -> dict[str, Tensor]:
    torch.manual_seed(5)
    targets = torch.softmax(torch.randn(6, 3).double(), dim=1)
    images, seen = torch.randn(6, 2, size, size).double(), torch.randn(6, 2, taught, taught).double()
    return {"images": images, "taught": seen, "targets": targets}


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("student", [vit, deit])
def test_the_loss_is_that_of_plain_torch(student: Any, kind: Any) -> None:
    cfg = TaughtConfig("RUN", kind, 0.3, 2.0)
    found, given = objective(student(), cfg), inputs()
    loss, metrics = found(given)
    wanted = found.teacher(given["taught"])
    if found.net.second is None:
        first = second = found.net(given["images"])
    else:
        tokens = found.net.backbone.forward_tokens(given["images"]).prefix  # pyright: ignore[reportCallIssue]
        first, second = found.net.head(tokens[:, 0]), found.net.second(tokens[:, 1])
        assert torch.equal(found.net(given["images"]), (first + second) / 2)
    labels = F.cross_entropy(first, given["targets"])
    if kind == "hard":
        apart = F.cross_entropy(second, wanted.argmax(dim=1))
    else:
        p, q = torch.softmax(wanted / 2, 1), torch.softmax(second / 2, 1)
        apart = 4 * (p * (p / q).log()).sum() / second.numel()
    assert (loss - (0.7 * labels + 0.3 * apart)).abs() <= 1e-12
    assert (metrics["labels"] - labels).abs() <= 1e-12 and (metrics["teacher"] - apart).abs() <= 1e-12


def test_a_student_that_is_its_teacher_has_nothing_to_learn_softly() -> None:
    of = teacher(vit())
    found = objective(vit(), TaughtConfig("RUN", "soft", 1.0), of)
    found.net.load_state_dict(of.net.state_dict())
    loss = found({**inputs(), "taught": inputs()["images"]}).loss
    assert abs(float(loss.detach())) <= 1e-12


def test_classes_in_another_order_are_put_in_the_students() -> None:
    same = teacher()
    turned = teacher(names=("owl", "cat", "dog"))
    turned.net.load_state_dict(same.net.state_dict())
    with torch.no_grad():
        one_head, other_head = cast("torch.nn.Linear", same.net.head), cast("torch.nn.Linear", turned.net.head)
        other_head.weight.copy_(one_head.weight[[2, 0, 1]])
        other_head.bias.copy_(one_head.bias[[2, 0, 1]])
    cfg = TaughtConfig("RUN", "soft", 0.5, token_weight=1.0)
    one, other = objective(vit(), cfg, same), objective(vit(), cfg, turned)
    other.load_state_dict(one.state_dict())
    assert (one(inputs()).loss - other(inputs()).loss).abs() <= 1e-12


@pytest.mark.parametrize("pool", ["cls", "mean", "mean_prenorm"])
@pytest.mark.parametrize("name", ["vit", "resnet", "beit", "deit", "relative"])
def test_every_place_learns_what_the_teachers_head_says_of_it(name: str, pool: Any) -> None:
    nets = {
        "vit": vit, "deit": deit, "resnet": lambda: family("resnet_small_images"),
        "beit": lambda: family("beit_base_patch16_224"), "relative": lambda: family("vit_relpos_small_patch16_224"),
    }  # fmt: skip
    if pool != "mean" and name != "vit":
        pytest.skip("has its own pooled feature alone")
    loss = ResolvedSupervised(pool, 0.1, 0.0, 0.0, 0.0, 0.0)
    of = teacher(pool=pool)
    found, given = objective(nets[name](), TaughtConfig("RUN", "hard", 0.0, token_weight=0.5), of, loss), inputs()
    value, metrics = found(given)
    assert found.dense is not None and found.places == 4
    tokens = of.net.backbone.forward_tokens(given["taught"], norm=pool != "mean_prenorm").patches  # pyright: ignore[reportCallIssue]
    wanted = of.net.head(of.net.fc_norm(tokens)).softmax(dim=2)
    outputs, _, places = found._say(given["images"], None)
    assert places is not None and places.shape == (6, 16, found.net.backbone.embed_dim)
    said = found.dense(found.dense_norm(places)).log_softmax(dim=2)  # pyright: ignore[reportOptionalCall]
    of_places = -(wanted * said).sum(dim=2).mean()
    assert (metrics["places"] - of_places).abs() <= 1e-12
    assert (value - F.cross_entropy(outputs, given["targets"]) - 0.5 * of_places).abs() <= 1e-12
    value.backward()
    assert [n for n, p in found.named_parameters() if p.requires_grad and p.grad is None] == []


SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "convnext": ("convnext_atto", {"patch_size": 1, "depths": [1, 1, 1, 1], "dims": [8, 8, 16, 16]}),
    "pvtv2": ("pvt_v2_b0", {"embed_dims": [16, 32], "depths": [1, 1], "num_heads": [1, 2], "sr_ratios": [2, 1],
                            "mlp_ratios": [2, 2]}),
    "resnet": ("resnet_small_images", {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 16]}),
    "swin": ("swin_tiny_patch4_window7_224", {"img_size": 16, "patch_size": 2, "window_size": 4, "embed_dim": 16,
                                              "depths": [1, 1], "num_heads": [1, 2]}),
    "eva": ("eva02_tiny_patch14_224", {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}),
}  # fmt: skip


def small(name: str) -> TrainedClassifier:
    torch.manual_seed(7)
    architecture, args = SMALL[name]
    return teacher(make_backbone(architecture, {**args, "in_chans": 2}, img_size=16))


@pytest.mark.parametrize("name", SMALL)
def test_a_pooling_teachers_head_reads_places_as_it_reads_their_mean(name: str) -> None:
    of, images = small(name), inputs()["taught"]
    net, found = of.net, objective(vit(), TaughtConfig("RUN", token_weight=1.0), of)
    own: Any = net.backbone.model  # pyright: ignore[reportAttributeAccessIssue]
    places = net.backbone.feature_map(images).permute(0, 2, 3, 1)
    behind = {"convnext": lambda x: F.layer_norm(x, x.shape[-1:], own.head.norm.weight, own.head.norm.bias, 1e-6),
              "eva": lambda x: own.fc_norm(x)}.get(name, lambda x: x)  # fmt: skip
    assert (net.head(behind(places.mean(dim=(1, 2)))) - net(images)).abs().max() <= 1e-12
    scores = net.head(behind(places))
    if name in ("pvtv2", "resnet", "swin"):
        assert (scores.mean(dim=(1, 2)) - net(images)).abs().max() <= 1e-12
    else:  # and without the norm they would be others
        assert (net.head(places).mean(dim=(1, 2)) - net(images)).abs().max() > 1e-2
    assert found.places == 4
    outputs, wanted = found._asked(images)
    resized = F.interpolate(scores.permute(0, 3, 1, 2), 4, mode="bilinear") if places.shape[1] != 4 else None
    rows = scores.flatten(1, 2) if resized is None else resized.flatten(2).transpose(1, 2)
    assert wanted is not None and (outputs - net(images)).abs().max() <= 1e-12
    assert (wanted - rows.softmax(dim=2)).abs().max() <= 1e-6


@pytest.mark.parametrize(
    ("net", "pool", "told"),
    [
        (vit, "cls", True), (vit, "mean", False), (deit, "mean", True),
        (lambda: family("beit_base_patch16_224"), "mean", False),
        (lambda: small("convnext").net.backbone, "mean", False),
    ],
)  # fmt: skip
def test_a_head_that_has_read_class_tokens_alone_is_told(
    net: Any, pool: Any, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    notices.forget()
    of = teacher(net(), pool)
    objective(vit(), TaughtConfig("RUN"), of)
    assert "note" not in capsys.readouterr().err
    objective(vit(), TaughtConfig("RUN", token_weight=1.0), of)
    assert capsys.readouterr().err.count("was trained on a class token alone; --taught.token_weight 1 has") == told


def test_a_teacher_stays_as_it_is_and_in_no_checkpoint() -> None:
    of = teacher(family("resnet_small_images"))
    before = {name: value.clone() for name, value in of.net.state_dict().items()}
    found = objective(vit(), TaughtConfig("RUN", token_weight=1.0), of).train()
    optimizer = torch.optim.AdamW([p for p in found.parameters() if p.requires_grad], lr=1e-2)
    for step in range(2):
        found(inputs()).loss.backward()
        optimizer.step()
        found.after_step(Clock(step, 2, 1.0))
    assert all(torch.equal(value, before[name]) for name, value in of.net.state_dict().items())
    assert all(p.grad is None for p in of.net.parameters())
    assert not [name for name in found.state_dict() if "teacher" in name]


def test_two_heads_are_exported_for_timm(tmp_path: Path) -> None:
    found = objective(deit(), TaughtConfig("RUN"))
    assert has_distillation_token(found.net.backbone) and not has_distillation_token(vit())
    net = found.net.float().eval()
    assert net.second is not None and not torch.equal(net.second.weight, net.head.weight)  # pyright: ignore[reportArgumentType]
    assert export_classifier(net, tmp_path / "run" / "classifier", SCALE, CLASSES, {})
    theirs = timm.create_model(f"local-dir:{tmp_path / 'run' / 'classifier'}", pretrained=True).eval()
    again = load_classifier(str(tmp_path / "run"))
    images = torch.randn(4, 2, 16, 16)
    with torch.no_grad():
        ours = net(images)
        assert ours.std() > 1e-3
        assert (theirs(images) - ours).abs().max() <= 1e-5
        assert (again.net.eval()(images) - ours).abs().max() <= 1e-6


def test_teachers_that_do_not_fit() -> None:
    for names, words in (
        (("cat", "dog"), "trained on other classes than these 3: it does not know owl; give a run on the same"),
        (
            ("cat", "dog", "owls"),
            "it does not know owl; it knows besides owls; give a run on the same classes; did you mean owls",
        ),
        (("cat", "dog", "owl", "ant", "bee", "cow", "elk"), "it knows besides ant, bee, cow and others; give"),
    ):
        with pytest.raises(UserError, match=words) as told:
            order_of_classes(CLASSES._replace(names=names), CLASSES.names, "class", "RUN")
        assert "\n" not in str(told.value)
    with pytest.raises(UserError, match="--teacher RUN answers multilabel labels"):
        order_of_classes(CLASSES._replace(kind="multilabel"), CLASSES.names, "class", "RUN")
    with pytest.raises(UserError, match="these images have regression labels"):
        order_of_classes(CLASSES, CLASSES.names, "regression", "RUN")
    with pytest.raises(
        UserError, match=r"--taught\.token_weight 1: the teacher, test_convnext, has no square feature map"
    ):
        objective(vit(), TaughtConfig("RUN", token_weight=1.0), teacher(_narrow_head()))


def _narrow_head() -> Backbone:
    """Its head reads other numbers than a place has."""
    net = make_backbone("test_convnext", {"in_chans": 2}, img_size=32)
    net.embed_dim += 0
    plain = net.feature_map
    net.feature_map = lambda images: plain(images)[:, :-1]  # pyright: ignore[reportAttributeAccessIssue]
    return net


def test_options() -> None:
    for words in (["RUN", "cells"], ["--teacher", "RUN", "cells"], ["--taught.teacher=RUN", "--data.path", "cells"]):
        found = parse(TaughtRecipe, "", words)
        assert (found.taught.teacher, found.data.path) == ("RUN", "cells")
        assert from_words(TaughtRecipe, as_words(found)) == found
    for given, words in (("", "--teacher is missing"), ("/no/such/run", "--teacher /no/such/run does not exist")):
        with pytest.raises(UserError, match=words):
            check_options(TaughtRecipe(taught=TaughtConfig(given)))
    assert TaughtRecipe(model=ModelConfig("deit_micro")).taught.weight == 0.5
    with pytest.raises(UserError, match="are both 0"):
        resolve(TaughtRecipe(taught=TaughtConfig("RUN", weight=0.0)), FACTS, PRESETS["px32"])
