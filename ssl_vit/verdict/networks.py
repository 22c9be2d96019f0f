"""Networks beside the Vision Transformer: a ResNet and others of its size, and public weights."""

from __future__ import annotations

from ssl_vit.configs import ModelConfig, ResolvedModel
from ssl_vit.configs.networks import FAMILIES, known_as, short_name
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.data.images import ImageSet
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.exports.origin import recorded_data
from ssl_vit.exports.timm_folder import export_backbone
from ssl_vit.methods.starts import family_of
from ssl_vit.models.build import facts_of
from ssl_vit.released.named import check_named
from ssl_vit.released.starts import PUBLIC_WEIGHTS, for_images, layout_of, read_start
from ssl_vit.runs.networks import find_network
from ssl_vit.verdict.options import VerdictConfig, family_member, networks_of
from ssl_vit.verdict.study import Study

_RESNETS = {
    "test_resnet": 372_688, "resnet10t": 4_922_488, "resnet14t": 8_032_632, "resnet18": 11_176_512,
    "resnet34": 21_284_672, "resnet50": 23_508_032, "resnet101": 42_500_160, "resnet152": 58_143_808,
    "wide_resnet101_2": 124_837_696,
}  # fmt: skip
"""timm's names and parameters without a classifier."""
PUBLIC = "vit_small_patch16_224.dino"
_LEAST = 64
"""Pixels from which public weights of photographs at 224 px are worth their price unasked."""


def cnn_for(
    name: str | None, parameters: int, size: int, window: int | None = None, *, small: bool = False
) -> ModelConfig:
    """The ResNet that stands for CNNs; small images are enlarged for it, because it halves them five times.

    Without a name it is the one whose number of parameters is nearest to the Vision Transformer's (in ratio). The input
    has ``size`` pixels a side; windows (a side in pixels, too) are not enlarged, ``small`` ones little, and networks
    made for small images read them as they are.

    Raises:
        UserError: For a name that timm does not know.
    """
    name = name or min(_RESNETS, key=lambda n: max(_RESNETS[n] / parameters, parameters / _RESNETS[n]))
    try:
        facts_of(ModelConfig(name))
    except UserError as error:
        raise UserError(str(error).replace("--model.name", "--verdict.cnn")) from error
    enlarged = size if known_as(name) in FAMILIES else max(32 if size <= 16 or small else 64, size)
    return ModelConfig(name, img_size=enlarged if window is None else min(enlarged, window), pool="mean")


def networks_beside(
    cfg: VerdictConfig, vit: ResolvedModel, parameters: int, window: int | None, preset: str, *, small: bool = False
) -> dict[str, ModelConfig]:
    """The networks of ``--verdict.networks``, with the Vision Transformer's input but for CNNs, which enlarge it.

    Where a method has a network of its own for the preset, that one stands for CNNs, unless it is the study's own; its
    smaller sister beside Vision Transformers of less than 500,000 parameters. Where time made the Vision Transformer
    ``small``, CNNs enlarge less.

    Raises:
        UserError: For a name that neither timm nor the project knows.
    """
    found: dict[str, ModelConfig] = {}
    for name in networks_of(cfg):
        if name == "cnn":
            own = None if cfg.cnn else family_of(preset)
            cnn = family_member(own, parameters) if own else cfg.cnn
            cnn = None if own and cnn == short_name(vit.name, vit.args) else cnn
            found[name] = cnn_for(cnn, parameters, vit.img_size, window, small=small)
            continue
        model = ModelConfig(family_member(name, parameters), img_size=vit.img_size, pool="mean")
        try:
            facts_of(model)
        except UserError as error:
            known = ("vit", "cnn", *dict.fromkeys(family.rpartition("_")[0] for family in FAMILIES))
            line = str(error).replace("--model.name", "--verdict.networks")
            raise UserError(line + ("" if "did you mean" in line else did_you_mean(name, known))) from error
        found[name] = model
    return found


def prepare_public(study: Study, pool: ImageSet, *, asked: bool) -> str | None:
    """Puts public weights where evaluation finds them.

    They may have been ``asked`` for, or only wanted where they can be had. They are adapted to the images as those of
    ``--backbone`` are.

    Returns:
        Why they cannot take part; None where they do.

    Raises:
        UserError: For weights that were given and cannot be had.
    """
    place, given = study.folder / "runs" / "public" / "backbone", study.recipe.verdict.public
    if (place / "config.json").exists():
        return None
    size = study.model.img_size or 0
    if not asked and size < _LEAST:
        return f"networks for photographs of 224 px cost much on images of {size} px; name one with --verdict.public"
    name, option = given or PUBLIC, "--verdict.public"
    where = find_network(name, option)
    if where.kind == "timm name":  # its size is told before anything is downloaded
        size = where.size or check_named(where.name, option)
        if why := _too_large(study, name, size):
            return why
    try:
        start = read_start(name, option)
    except UserError as error:
        if given:
            raise
        return str(error).removeprefix(f"{option}: ").partition(";")[0]
    if why := _too_large(study, name, start.size):
        return why
    data = study.recipe.data
    found = for_images(start, pool.on_canvas(data.canvas, start.size, data.window))
    about = recorded_data(data, study.recipe.eval.data)
    about |= {"objective": PUBLIC_WEIGHTS, "public": name, **layout_of(start)}
    export_backbone(found.backbone, place, found.scale, "cls" if found.pool == "cls" else "mean", about)
    return None


def _too_large(study: Study, name: str, size: int) -> str | None:
    """Why a network cannot see the images: windows are at native scale."""
    window = study.recipe.data.window or size
    words = f"{name} reads {size} px, and windows of {window} px (--data.window) are not enlarged"
    return words if window < size else None


def own_scale(study: Study, pool: ImageSet, size: int) -> PixelScale:
    """Statistics of the images themselves, as a network of that input size in pixels sees them."""
    return measure_scale(pool.on_canvas(study.recipe.data.canvas, size, study.recipe.data.window))
