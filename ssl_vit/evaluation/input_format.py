"""Images of other channels and bits than those that a network was trained on."""

from __future__ import annotations

from dataclasses import replace

from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ImageSet
from ssl_vit.exports.timm_folder import Exported
from ssl_vit.released.starts import for_images


def as_trained(images: ImageSet, exported: Exported) -> ImageSet:
    """Grey images as colour where the network of a run was trained on colour, as in a pool that has both.

    So an image is the same input whatever lies beside it.
    """
    own = Format(exported.backbone.channels, exported.scale.bits)
    if "data" in exported.about and own.channels == 3 and images.form == (1, own.bits):
        return replace(images, form=own)
    return images


def fitted(images: ImageSet, exported: Exported) -> Exported:
    """A network for images of other channels and bits than its own; that of a run is told to be so.

    Raises:
        UserError: For images that the network cannot be adapted to.
    """
    own = exported.backbone.channels, exported.scale.bits
    if "data" in exported.about:
        if images.form == own:
            return exported
        say_once(
            f"note: the backbone was trained on {_kind(*own)}; for {images.name}, {_kind(*images.form)}, its first "
            "layer is adapted, and pixels are standardised by these images' own statistics"
        )
    return for_images(exported, images)


def _kind(channels: int, bits: int) -> str:
    return f"images of {channels} channel(s) and {bits} bits"


def check_format(images: ImageSet, exported: Exported) -> None:
    """Refuses (``UserError``) images of other channels or another bit depth than the backbone was built for."""
    if images.form.channels != exported.backbone.channels:
        raise UserError(
            f"{images.name} has images of {images.form.channels} channel(s), but the backbone was built for "
            f"{exported.backbone.channels}; channels come from the files, or from several columns "
            "(--data.image_column a,b,c)"
        )
    if images.form.bits != exported.scale.bits:
        raise UserError(
            f"{images.name} has {images.form.bits}-bit images, but the backbone was trained on "
            f"{exported.scale.bits}-bit ones"
        )
