"""Images as pictures show them: which are chosen, in colour or channel by channel, on which scale."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.loader import chosen_images
from ssl_vit.data.scale import PixelScale
from ssl_vit.views.evaluation import eval_images

_MOST = 4
"""Channels that are drawn where each is a picture of its own."""
_HIDDEN = (0.78, 0.86, 0.95)  # a tint that no grey image contains


def planes(images: Float[Tensor, "B C H W"], scale: PixelScale) -> list[tuple[str, Float[np.ndarray, "B H W 3"]]]:
    """What to draw of normalised images: one picture in colour, or one per channel, each with its name."""
    pixels = scale.restore(images)
    return [
        (plane_name(plane, pixels.shape[1], "image"), displayed(pixels[:, plane], *value_range(pixels[:, plane])))
        for plane in shown_planes(pixels.shape[1], scale.bits)
    ]


def shown_planes(channels: int, bits: int) -> list[slice]:
    """Channels that make a picture each: all three of a photograph, else one, at most four times.

    Only photographs are shown in colour: three channels of a microscope are no red, green and blue.
    """
    return [slice(0, 3)] if channels == 3 and bits == 8 else [slice(c, c + 1) for c in range(channels)][:_MOST]


def plane_name(plane: slice, channels: int, whole: str) -> str:
    """``whole`` where a plane is all of the image, else the channel's number."""
    return whole if plane.stop - plane.start == channels else f"channel {plane.start + 1}"


def omitted(channels: int, bits: int) -> str:
    """A sentence about channels that are not drawn; empty where all are."""
    shown = shown_planes(channels, bits)[-1].stop
    return f"Channels {shown + 1} to {channels} are not shown." if shown < channels else ""


def value_range(images: Tensor) -> tuple[float, float]:
    """Black and white of the picture: the range of nearly all pixels, so that dark and speckled images are visible."""
    low, high = np.quantile(images.detach().float().cpu().numpy(), (0.002, 0.998)).tolist()
    if high <= low:
        low, high = float(images.min()), float(images.max())
    return (low, high) if high > low else (0.0, 1.0)


def displayed(images: Float[Tensor, "B C H W"], low: float, high: float) -> Float[np.ndarray, "B H W 3"]:
    """Three channels or one in [0, 1]; hidden patches (NaN) get a tint."""
    x = ((images.detach().float().cpu() - low) / (high - low)).clamp(0.0, 1.0).expand(-1, 3, -1, -1)
    return torch.where(x.isnan(), torch.tensor(_HIDDEN)[:, None, None], x).permute(0, 2, 3, 1).numpy()


def cut(images: ImageSet, positions: Int[np.ndarray, " n"], size: int) -> Float[Tensor, "n C S S"]:
    """Images as a network sees them in evaluation, but in [0, 1].

    Args:
        images: Where to take them from.
        positions: Which, in this order.
        size: Side of the network's input in pixels.

    Raises:
        UserError: When one of them cannot be read.
    """
    batch, unreadable = chosen_images(images, positions, torch.device("cpu"))
    if unreadable:
        raise UserError(f"images that were read before cannot be drawn: {'; '.join(unreadable)}")
    channels, bits = images.form
    as_it_is = PixelScale((0.0,) * channels, (1.0,) * channels, bits)
    return eval_images(batch, as_it_is, size, torch.float32)


def thumbnails(pixels: Float[Tensor, "n C H W"], bits: int) -> Float[np.ndarray, "n H W 3"]:
    """One picture per image in [0, 1], all on one scale, so that light images stay lighter than dark ones.

    What is no photograph gets false colours: of two channels magenta and green, which people of any colour vision tell
    apart, of three or more red, green and blue for the first three.
    """
    channels = pixels.shape[1]
    if channels == 1 or (channels == 3 and bits == 8):
        return displayed(pixels, *value_range(pixels))
    planes = [displayed(pixels[:, [c]], *value_range(pixels[:, [c]]))[..., 0] for c in range(min(3, channels))]
    return np.stack([planes[0], planes[1], planes[2 if channels > 2 else 0]], axis=3)


def colouring(channels: int, bits: int) -> str:
    """A sentence about the colours of ``thumbnails``; empty where they are the images' own."""
    if channels == 1 or (channels == 3 and bits == 8):
        return ""
    colours = "magenta and green" if channels == 2 else "red, green and blue"
    rest = f"; channel{f's 4 to {channels} are' if channels > 4 else ' 4 is'} not shown" if channels > 3 else ""
    return f"False colours: channels 1 {'and 2' if channels == 2 else 'to 3'} in {colours}{rest}."
