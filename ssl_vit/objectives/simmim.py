"""SimMIM (Xie et al. 2022, "SimMIM: a Simple Framework for Masked Image Modeling"), for every backbone.

Hidden pixels are replaced in the image, before the backbone, so that no stem can look at them, however much its windows
overlap; one linear layer predicts them from the feature map.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ssl_vit.configs import ResolvedAugment
from ssl_vit.core.errors import UserError
from ssl_vit.core.masking import kept_patches, random_mask
from ssl_vit.core.randomness import bits
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.methods.simmim import ResolvedSimMIMRecipe
from ssl_vit.models.backbone import Backbone, as_judged
from ssl_vit.objectives.base import Built, Objective, StepOutput, train_all
from ssl_vit.views.training import View, left_out, sample_key, train_images


def hidden_pixels(cells: Bool[Tensor, "B g g"], size: int) -> Bool[Tensor, "B 1 S S"]:
    """Which pixels are hidden, of the squares that are.

    Args:
        cells: True for a hidden square of the image.
        size: S, side of the image in pixels, a multiple of g.
    """
    side = size // cells.shape[1]
    return cells.repeat_interleave(side, dim=1).repeat_interleave(side, dim=2)[:, None]


def error_of_hidden(
    predicted: Float[Tensor, "B C S S"], wanted: Float[Tensor, "B C S S"], hidden: Bool[Tensor, "B 1 S S"]
) -> Float[Tensor, ""]:
    """Mean absolute error over hidden pixels and channels (section 3.4).

    The released code adds 1e-5 to the number of hidden pixels, for images without any; here every image has as many.

    Args:
        predicted: Pixels.
        wanted: Normalised pixels.
        hidden: True where the error counts.
    """
    error = (predicted.to(wanted.dtype) - wanted).abs()
    return torch.where(hidden, error, 0.0).sum() / (hidden.sum() * wanted.shape[1])


class SimMIM(Objective):
    """Mean absolute error of the hidden pixels, predicted by a 1x1 convolution (SimMIM, sections 3.2 to 3.4).

    The released ViT puts a mask token in the place of a patch's embedding. Here a learned patch of pixels is put into
    the image, whose embedding is such a token.
    """

    def __init__(self, backbone: Backbone, *, freeze_positions: bool = False) -> None:
        """Adds a learned patch and a linear decoder to a backbone; UserError where its map does not divide the image.

        What its feature map does not depend on, such as a norm behind the pooling, stays as it is: a parameter without
        a gradient cannot be trained on several processes. So does a sine-cosine table of positions.
        """
        super().__init__()
        self.backbone = backbone
        self.stride, width, unused = _look_at_map(backbone)
        train_all(backbone, freeze_positions)
        for name in unused:
            backbone.get_parameter(name).requires_grad_(False)
        # As the released mask token starts. With a constant patch, rounding would say which pixel a max-pooling takes.
        self.patch = nn.Parameter(torch.empty(backbone.channels, self.stride, self.stride))
        nn.init.normal_(self.patch, std=0.02)
        self.decoder = nn.Conv2d(width, self.stride**2 * backbone.channels, 1)
        self.shuffle = nn.PixelShuffle(self.stride)

    def predict(self, images: Float[Tensor, "B C S S"], hidden: Bool[Tensor, "B 1 S S"]) -> Float[Tensor, "B C S S"]:
        """Every pixel, from normalised images with the learned patch in the place of the hidden ones."""
        return self.shuffle(self.decoder(self.encode(images, hidden)))

    def encode(self, images: Float[Tensor, "B C S S"], hidden: Bool[Tensor, "B 1 S S"]) -> Float[Tensor, "B D h w"]:
        """The feature map of images with the learned patch in the place of the hidden pixels."""
        places = images.shape[2] // self.stride
        return self.backbone.feature_map(torch.where(hidden, self.patch.repeat(1, places, places), images))

    def encoded(self, inputs: dict[str, Tensor]) -> Float[Tensor, "B D h w"]:
        """See ``Objective.encoded``."""
        images = inputs["images"]
        return self.encode(images, hidden_pixels(inputs["hidden"], images.shape[2]))

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        """The loss of ``images`` Float[B C S S] (normalised) and ``hidden`` Bool[B g g], the hidden squares."""
        images = inputs["images"]
        hidden = hidden_pixels(inputs["hidden"], images.shape[2])
        return StepOutput(error_of_hidden(self.predict(images, hidden), images, hidden), {})


def _look_at_map(backbone: Backbone) -> tuple[int, int, set[str]]:
    """Pixels along the side of a place of the feature map, its channels, and names of parameters it does not need."""
    backbone.requires_grad_(True)
    size, named = backbone.img_size, dict(backbone.named_parameters())
    with as_judged(backbone):
        found = backbone.feature_map(next(iter(named.values())).new_zeros(1, backbone.channels, size, size))
    reached = torch.autograd.grad(found.sum(), list(named.values()), allow_unused=True)
    _, width, rows, columns = found.shape
    if rows != columns or size % rows:
        raise UserError(
            f"SimMIM predicts the pixels of every place of a map, and {backbone.architecture} has {rows} x {columns} "
            f"places for an image of {size} x {size} pixels; choose a --model.img_size that they divide"
        )
    unused = {name for name, gradient in zip(named, reached, strict=True) if gradient is None}
    return size // rows, width, unused


def simmim_view(
    scale: PixelScale, cfg: ResolvedAugment, *, size: int, side: int, kept: int, dtype: torch.dtype
) -> View:
    """Images and which squares of them are hidden.

    Args:
        scale: Pixel statistics.
        cfg: Resolved.
        size: S, side of the model's input in pixels.
        side: Of a square, in pixels; divides S, and g = S / side.
        kept: Visible squares of the g * g.
        dtype: Arithmetic of the images.
    """
    across = size // side

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        images = train_images(batch, seed, scale, cfg, size, dtype)
        mask = random_mask(bits(sample_key(seed, "mask", batch), across * across), kept)
        cells = torch.zeros((len(images), across * across), dtype=torch.bool, device=images.device)
        hidden = cells.scatter(1, mask.mask_ids, torch.ones_like(mask.mask_ids, dtype=torch.bool))
        return {"images": images, "hidden": hidden.unflatten(1, (across, across))}

    return view


def build(cfg: ResolvedSimMIMRecipe, backbone: Backbone, scale: PixelScale, dtype: torch.dtype) -> Built:
    """Objective and view of one run; UserError for a map that does not divide the image, a mask of all or nothing."""
    size, side = cfg.model.img_size, cfg.simmim.mask_side
    squares = (size // side) ** 2
    kept = kept_patches(squares, cfg.simmim.mask_ratio, "--simmim.mask_ratio")
    objective = SimMIM(backbone, freeze_positions=cfg.model.positions == "sincos")
    view = simmim_view(scale, cfg.augment, size=size, side=side, kept=kept, dtype=dtype)
    sees = f"{size} px = {squares} squares of {side} px, {kept} visible"
    return Built(objective, view, sees, left_out(cfg.augment, backbone.channels, scale.bits))
