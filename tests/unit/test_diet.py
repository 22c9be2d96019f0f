"""DIET against torch's own cross-entropy; the class of an image, whatever the order; what does not fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from ssl_vit.configs import DataConfig, LabelledDataConfig, ResolvedAugment, ResolvedModel, parse
from ssl_vit.configs.presets import PRESETS
from ssl_vit.core import notices
from ssl_vit.core.errors import UserError
from ssl_vit.core.randomness import make_key
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.sources.opening import open_pool
from ssl_vit.methods import Facts
from ssl_vit.methods.diet import METHOD, DIETConfig, DIETRecipe, ResolvedDIETRecipe
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import ModelFacts, build_backbone
from ssl_vit.objectives import diet
from ssl_vit.objectives.diet import DIET, build, diet_view, own_class_loss
from ssl_vit.views.crop_colours import jitter_some
from torch import Tensor, nn

PLAIN = ResolvedAugment(crop_scale=(1.0, 1.0), flip=False, policy="none", erasing=0.0)
EXACT = {"rtol": 0.0, "atol": 1e-12}


def vit() -> Backbone:
    torch.manual_seed(1)
    return build_backbone(ResolvedModel("vit_tiny_patch16_224", 16, 4, 24, 2, 2, "learnable", "cls"), 2)


def resnet() -> Backbone:
    torch.manual_seed(1)
    return build_backbone(ResolvedModel("test_resnet", 32, pool="mean"), 2)


def resolved(recipe: DIETRecipe | None = None, images: int = 5000, preset: str = "px32") -> ResolvedDIETRecipe:
    model = ResolvedModel("vit_tiny_patch16_224", 16, 4, 24, 2, 2, "learnable", "cls")
    return METHOD.resolve(recipe or DIETRecipe(), Facts(images, model, ModelFacts(16, 4, 24, 2, 2)), PRESETS[preset])


@pytest.mark.parametrize("smoothing", [0.0, 0.8])
@pytest.mark.parametrize("chunk", [1, 3, 7, None])
def test_the_loss_and_its_gradients_are_those_of_torch(chunk: int | None, smoothing: float) -> None:
    torch.manual_seed(0)
    rows, own = torch.randn(11, 5).double().requires_grad_(), torch.tensor([3, 0, 10, 3, 7, 1, 2])
    x = torch.randn(7, 5).double().requires_grad_()
    loss, right = own_class_loss(x, rows, own, smoothing=smoothing, chunk=chunk)
    found = torch.autograd.grad(3.0 * loss, (x, rows))
    outputs = F.linear(x, rows)
    plain = F.cross_entropy(outputs, own, label_smoothing=smoothing)
    torch.testing.assert_close(loss, plain, **EXACT)
    for gradient, wanted in zip(found, torch.autograd.grad(3.0 * plain, (x, rows)), strict=True):
        torch.testing.assert_close(gradient, wanted, **EXACT)
    assert not right.requires_grad
    assert float(right) == float((outputs.argmax(dim=1) == own).double().mean())


def test_frozen_rows_or_features_get_no_gradient_and_nothing_is_differentiated_twice() -> None:
    x, rows, own = torch.randn(4, 3).requires_grad_(), torch.randn(6, 3), torch.arange(4)
    loss, _ = own_class_loss(x, rows, own, smoothing=0.8)
    loss.backward(retain_graph=True)
    assert x.grad is not None and rows.grad is None
    with pytest.raises(RuntimeError, match="differentiated once"):
        loss.backward()
    loss, _ = own_class_loss(x.detach(), rows.requires_grad_(), own, smoothing=0.8)
    loss.backward()
    assert rows.grad is not None


@pytest.mark.parametrize("net", [vit, resnet])
def test_training_is_that_of_a_plain_classifier(net: Callable[[], Backbone]) -> None:
    """Some steps of AdamW, of the objective and of the method as one would write it down."""
    size = net().img_size
    torch.manual_seed(3)
    own = DIET(net(), classes=9, smoothing=0.8, pool="cls" if net is vit else "mean").double()
    other, head = net().double(), nn.Linear(own.head.in_features, 9, bias=False).double()
    head.load_state_dict(own.head.state_dict())
    images, index = torch.randn(3, 4, 2, size, size).double(), torch.randint(0, 9, (3, 4))
    first = torch.optim.AdamW(own.parameters(), lr=1e-3, weight_decay=0.05)
    second = torch.optim.AdamW([*other.parameters(), *head.parameters()], lr=1e-3, weight_decay=0.05)
    for seen, which in zip(images, index, strict=True):
        loss = own({"images": seen, "own": which}).loss
        plain = F.cross_entropy(head(other.forward_pooled(seen, pool=own.pool)), which, label_smoothing=0.8)
        torch.testing.assert_close(loss, plain, rtol=0.0, atol=1e-10)
        for each, optimizer in ((loss, first), (plain, second)):
            each.backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(own.head.weight, head.weight, rtol=0.0, atol=1e-8)


def test_outputs_are_compared_in_single_precision_under_autocast() -> None:
    torch.manual_seed(0)
    objective = DIET(vit(), classes=50, smoothing=0.8, pool="cls")
    inputs = {"images": torch.randn(8, 2, 16, 16), "own": torch.arange(8)}
    whole = objective(inputs).loss
    with torch.autocast("cpu", torch.bfloat16):
        half = objective(inputs).loss
    half.backward()
    assert half.dtype == torch.float32
    assert float(half.detach()) == pytest.approx(float(whole.detach()), rel=0.02)
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in objective.parameters())


def test_an_image_keeps_its_class_in_every_order_and_after_a_restart() -> None:
    pool = open_pool(DataConfig(), LabelledDataConfig())[0].subset(np.arange(40))
    scale = PixelScale((0.5,), (0.2,), 8)
    view = diet_view(scale, PLAIN, size=8, classes=len(pool), dtype=torch.float32)
    known: dict[int, Tensor] = {}
    for start, seed in ((0, 0), (3, 0), (0, 7)):
        loader = Loader(pool, batch_size=8, micro_batch=8, seed=seed, device=torch.device("cpu"))
        for batch in loader.batches(start, 10):
            inputs = view(batch, seed)
            for image, own in zip(inputs["images"], inputs["own"].tolist(), strict=True):
                assert torch.equal(known.setdefault(own, image), image)
    assert sorted(known) == list(range(40))


def test_fewer_classes_are_shared_by_images_far_apart(capsys: pytest.CaptureFixture[str]) -> None:
    view = diet_view(PixelScale((0.5,), (0.2,), 8), PLAIN, size=8, classes=5, dtype=torch.float32)
    pixels, index = torch.zeros(12, 1, 8, 8, dtype=torch.uint8), torch.arange(12)
    batch = Batch(pixels, index, torch.zeros_like(index), torch.full((12, 2), 8.0), True, None)
    assert view(batch, 0)["own"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    notices.forget()
    assert resolved(DIETRecipe(diet=DIETConfig(classes=70))).diet.classes == 70
    assert "--diet.classes 70 are fewer than the 5,000 images" in "".join(capsys.readouterr())


def test_every_image_is_a_class_and_more_classes_are_refused() -> None:
    assert resolved(images=1234).diet.classes == 1234
    assert resolved(images=1).diet.classes == 2  # a softmax over one class says nothing
    with pytest.raises(UserError, match=r"^--diet\.classes 6000 are more than the 5000 images; leave it out"):
        resolved(DIETRecipe(diet=DIETConfig(classes=6000)))


def test_a_classifier_larger_than_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg, scale = resolved(), PixelScale((0.5, 0.5), (0.2, 0.2), 8)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(diet, "free_memory", lambda: 16 * 5000 * 24 - 1)
    with pytest.raises(UserError, match=r"5,000 classes of 24 numbers take 0\.0 GB.*fewer --diet\.classes"):
        build(cfg, vit(), scale, torch.float32)
    monkeypatch.setattr(diet, "free_memory", lambda: 16 * 5000 * 24)
    built = build(cfg, vit(), scale, torch.float32)
    assert built.sees == "16 px, 5,000 classes"
    assert built.objective.describe(1) == "classes         5,000 rows of 24 numbers, 1.92 MB with gradient and averages"
    assert [note for note in built.notes if "2 channel(s)" in note] == list(built.notes) != []


def test_images_vary_as_on_labels_and_otherwise_only_where_that_is_said() -> None:
    usual, digits = resolved().augment, resolved(preset="digits").augment
    assert (usual.policy, usual.erasing, usual.crop_scale, usual.flip) == ("jitter", 0.25, (0.08, 1.0), True)
    assert (digits.policy, digits.erasing, digits.crop_scale, digits.flip) == ("jitter", 0.0, (0.6, 1.0), False)
    asked = parse(DIETRecipe, "", ["--augment.policy", "none", "--augment.erasing", "0"])
    assert (resolved(asked).augment.policy, resolved(asked).augment.erasing) == ("none", 0.0)


def test_some_images_are_jittered_and_each_is_its_own_in_any_batch() -> None:
    torch.manual_seed(0)
    images = torch.rand(600, 3, 6, 6).double()
    key = make_key(0, "colour", 0, torch.arange(600))
    found = jitter_some(key, images.clone(), bits=8)
    grey = (found[:, 0] - found[:, 2]).abs().amax(dim=(1, 2)) < 1e-9
    same = (found == images).flatten(1).all(dim=1)
    assert 0.15 < grey.double().mean() < 0.25
    assert 0.7 * 0.8 * 0.8 - 0.07 < same.double().mean() < 0.7 * 0.8 * 0.8 + 0.07
    assert found.min() >= 0 and found.max() <= 1 + 1e-12
    some = make_key(0, "colour", 0, torch.arange(100, 130))
    assert (jitter_some(some, images[100:130].clone(), bits=8) - found[100:130]).abs().max() <= 1e-12


def test_a_box_is_erased_where_that_is_asked_for() -> None:
    scale, index = PixelScale((0.5,), (0.2,), 8), torch.arange(30)
    batch = Batch(torch.full((30, 1, 24, 24), 9, dtype=torch.uint8), index, index * 0, torch.full((30, 2), 24.0), True,
                  None)  # fmt: skip
    for chance in (0.0, 1.0):
        cfg = ResolvedAugment(crop_scale=(1.0, 1.0), flip=False, policy="none", erasing=chance)
        images = diet_view(scale, cfg, size=24, classes=30, dtype=torch.float32)(batch, 0)["images"]
        assert (images.flatten(1).std(dim=1) > 0).all() == bool(chance)
