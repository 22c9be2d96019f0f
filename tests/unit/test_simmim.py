"""SimMIM: nothing hidden is seen, by any kind of network; which parameters are trained; masks of the view."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.configs import ResolvedAugment, ResolvedModel
from ssl_vit.core.errors import UserError
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.methods.simmim import side_of_hidden
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import build_backbone, make_backbone
from ssl_vit.objectives.simmim import SimMIM, error_of_hidden, hidden_pixels, simmim_view

KINDS = {
    "vit": lambda: build_backbone(ResolvedModel("vit_tiny_patch16_224", 32, 8, 24, 2, 2, "learnable", "cls"), 2),
    "swin": lambda: make_backbone(
        "swin_tiny_patch4_window7_224",
        {"in_chans": 2, "img_size": 32, "patch_size": 2, "window_size": 4, "embed_dim": 16, "depths": (1, 1, 2),
         "num_heads": (1, 2, 4), "strict_img_size": False},
        img_size=32,
    ),
    "convnext": lambda: make_backbone("test_convnext", {"in_chans": 2}, img_size=64),
    "resnet": lambda: make_backbone("test_resnet", {"in_chans": 2}, img_size=64),
    "beit": lambda: make_backbone(
        "beit_base_patch16_224",
        {"in_chans": 2, "img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2},
        img_size=32,
    ),
}  # fmt: skip


def made(kind: str) -> tuple[SimMIM, torch.Tensor, torch.Tensor]:
    """A network of that kind, images, and the quarter of them that is hidden."""
    torch.manual_seed(0)
    objective = SimMIM(KINDS[kind]()).double()
    size = objective.backbone.img_size
    hidden = torch.zeros(2, 4, 4, dtype=torch.bool)
    hidden[0, 1:3, 1:3] = hidden[1, :2, 2:] = True
    return objective, torch.randn(2, 2, size, size).double().requires_grad_(), hidden


@pytest.mark.parametrize("kind", KINDS)
def test_no_network_sees_a_hidden_pixel(kind: str) -> None:
    """The gradient of what is predicted to hidden pixels is exactly 0, though stems overlap; to others it is not."""
    objective, images, cells = made(kind)
    hidden = hidden_pixels(cells, images.shape[2])
    predicted = objective.predict(images, hidden)
    assert predicted.shape == images.shape
    torch.manual_seed(1)
    (predicted * torch.randn_like(predicted)).sum().backward()
    assert images.grad is not None
    assert (images.grad[hidden.expand_as(images)] == 0).all()
    assert images.grad[~hidden.expand_as(images)].abs().max() > 0
    assert objective.patch.grad is not None
    assert objective.patch.grad.abs().max() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_trained_is_what_the_map_depends_on(kind: str) -> None:
    """DDP refuses anything else; the network keeps its weights, its mode, its statistics, and torch its numbers."""
    torch.manual_seed(0)
    net: Backbone = KINDS[kind]()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    state = torch.get_rng_state()
    net.train()
    objective = SimMIM(net)
    assert all(part.training for part in net.modules())
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    torch.nn.Conv2d(objective.decoder.in_channels, objective.decoder.out_channels, 1)
    assert torch.equal(torch.get_rng_state(), after)  # the decoder's weights alone were drawn
    frozen = {name for name, parameter in net.named_parameters() if not parameter.requires_grad}
    assert {name.split(".")[-2] for name in frozen} <= {"norm", "fc_norm"}
    assert bool(frozen) == (kind in ("convnext", "beit"))
    objective.train()
    size = net.img_size
    hidden = torch.zeros(2, 4, 4, dtype=torch.bool)
    hidden[:, :2] = True
    objective({"images": torch.randn(2, 2, size, size), "hidden": hidden}).loss.backward()
    for name, parameter in objective.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name


def test_the_error_is_the_mean_over_hidden_pixels_and_channels() -> None:
    wanted, predicted = torch.zeros(2, 5, 4, 4), torch.zeros(2, 5, 4, 4)
    cells = torch.tensor([[[True, False], [False, False]], [[False, False], [False, True]]])
    hidden = hidden_pixels(cells, 4)
    assert hidden[0, 0].tolist() == [[True, True, False, False]] * 2 + [[False] * 4] * 2
    predicted[0, :, :2, :2], predicted[1, :, 2:, 2:], predicted[:, :, :2, 2:] = 1.0, -2.0, 9.0
    assert float(error_of_hidden(predicted, wanted, hidden)) == pytest.approx(1.5)


def test_a_map_that_does_not_divide_the_image_is_refused() -> None:
    net = make_backbone("test_resnet", {"in_chans": 3}, img_size=33)
    with pytest.raises(UserError, match=r"test_resnet has 2 x 2 places for an image of 33 x 33 pixels.*img_size"):
        SimMIM(net)


@given(places=st.integers(1, 20), stride=st.sampled_from([1, 2, 4, 7, 8, 14, 16, 32]))
def test_hidden_squares_divide_the_image(places: int, stride: int) -> None:
    size = places * stride
    side = side_of_hidden(size, stride)
    assert size % side == 0
    assert side % stride == 0 or stride % side == 0
    assert size // side >= 4 or side == 1


def test_hidden_squares_of_known_networks() -> None:
    """The paper's 32 of 224 pixels for ViT and Swin; a patch where that is larger; four squares a side at least."""
    known = {(224, 16): 32, (224, 32): 32, (32, 4): 4, (8, 2): 2, (96, 8): 16, (64, 8): 8, (32, 32): 8, (192, 32): 32}
    assert {key: side_of_hidden(*key) for key in known} == known


def test_every_image_hides_as_many_squares_of_its_own() -> None:
    scale = PixelScale((0.5,), (0.2,), 8)
    cfg = ResolvedAugment(crop_scale=(1.0, 1.0), flip=False, policy="none", erasing=0.0)
    view = simmim_view(scale, cfg, size=8, side=2, kept=6, dtype=torch.float64)
    index = torch.arange(40)
    pixels = torch.randint(0, 256, (40, 1, 8, 8), dtype=torch.uint8)

    def seen(epoch: int, part: slice) -> dict[str, torch.Tensor]:
        sizes = torch.full((40, 2), 8.0)
        return view(Batch(pixels, index, torch.full((40,), epoch), sizes, True, None).part(part), 0)

    hidden = seen(0, slice(None))["hidden"]
    assert hidden.shape == (40, 4, 4)
    assert (hidden.sum(dim=(1, 2)) == 10).all()
    assert len(hidden.flatten(1).unique(dim=0)) > 35
    assert torch.equal(hidden[7:19], seen(0, slice(7, 19))["hidden"])
    assert not torch.equal(hidden, seen(1, slice(None))["hidden"])
