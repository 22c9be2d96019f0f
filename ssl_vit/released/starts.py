"""What ``--model.weights`` and ``--backbone`` name: a run, a folder of timm or transformers, a file, a timm name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch

from ssl_vit.configs import ModelConfig, ResolvedModel
from ssl_vit.configs.networks import ModelFacts, Needs, check_pool
from ssl_vit.configs.settled import settle
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.data.images import ImageSet
from ssl_vit.data.scale import PixelScale, measure_scale
from ssl_vit.exports.timm_folder import Exported, export_backbone, load_backbone, stored
from ssl_vit.methods.starts import titles
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import adapt, check_shape, make_backbone, model_facts
from ssl_vit.models.vit import ViTBackbone
from ssl_vit.released.files import digest, read_state
from ssl_vit.released.huggingface import read_transformers
from ssl_vit.released.layouts import Network, converted
from ssl_vit.released.named import read_named
from ssl_vit.runs.networks import RELEASED, Place, find_network

PUBLIC_WEIGHTS = titles()["public"]
"""What tables call weights that were made elsewhere."""
_UNTOLD = PixelScale((0.5,), (0.5,), 8)
"""Stands where nobody says how pixels are standardised; the images are then measured."""
_SHOWN = 5
_ODD = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What code raises that was written for other shapes."""


def read_start(given: str, option: str = "--backbone") -> Exported:
    """A network by what names it, in memory; its folder may not be there.

    Args:
        given: A run, a folder, a file or a name, and perhaps @PIXELS behind it.
        option: Which option names it.

    Raises:
        UserError: Where there is none, or what is there cannot be read or is no whole network.
    """
    place = find_network(given, option)
    if place.kind == "timm folder" and place.size is None:
        return load_backbone(str(place.path))
    with torch.random.fork_rng(devices=[]):  # what is drawn afterwards does not depend on where weights come from
        found = load_backbone(str(place.path)) if place.kind == "timm folder" else _assembled(given, place, option)
        if place.size is not None:
            backbone = adapt(found.backbone, img_size=place.size)
            found = found._replace(backbone=backbone, size=place.size)
    state = {name: stored(value) for name, value in found.backbone.timm_state().items()}
    weights_hash = digest(state)
    side = f"-{place.size}px" if place.size else ""
    stem = place.path.stem if place.path.is_file() else place.path.resolve().name
    stem = place.path.resolve().parent.name if stem == "backbone" else stem
    folder = Path("runs") / RELEASED / f"{place.name or stem}{side}-{weights_hash[:8]}" / "backbone"
    return found._replace(weights_hash=weights_hash, folder=folder)


def load_start(given: str, option: str = "--backbone") -> Exported:
    """The same with a folder that timm loads: weights of other layouts are kept as one below runs/released.

    There results, features and pictures of them lie, too.

    Args:
        given: A run, a folder, a file or a name, and perhaps @PIXELS behind it.
        option: Which option names it.

    Raises:
        UserError: As ``read_start``, and where nothing can be written.
    """
    found = read_start(given, option)
    if not (found.folder / "config.json").is_file():
        part = found.folder.with_name(f"backbone-{os.getpid()}")  # several processes may do this at once
        try:
            export_backbone(found.backbone, part, found.scale, found.pool, found.about)
            part.rename(found.folder)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            if not (found.folder / "config.json").is_file():
                raise UserError(f"{option} {given}: {found.folder} cannot be written ({error.strerror})") from error
    return found


def _assembled(given: str, place: Place, option: str) -> Exported:
    """Weights of another layout in timm's network."""
    try:
        match place.kind:
            case "timm name":
                network = read_named(place.name, option)
            case "transformers":
                network = read_transformers(place.path)
            case _:
                network = converted(read_state(place.path), str(place.path))
        backbone = make_backbone(network.architecture, network.args, img_size=network.size)
    except UserError:
        raise
    except _ODD as error:
        line = str(error).strip().partition("\n")[0]
        raise UserError(f"{option} {given}: timm has no network of such weights ({line}); save them again") from error
    check_whole(network, backbone, f"{option} {given}")
    backbone.load_timm_state(network.state)
    about: dict[str, Any] = {
        "objective": PUBLIC_WEIGHTS, "public": given, "layout": network.layout, "positions": network.positions,
    }  # fmt: skip
    about |= {"beside": list(network.left_out)} if network.left_out else {}
    about |= {"untold_scale": True} if network.scale is None else {}
    scale, channels = network.scale or _UNTOLD, backbone.channels
    if len(scale.mean) != channels:  # as many numbers as channels, which are not used
        scale = PixelScale(_UNTOLD.mean * channels, _UNTOLD.std * channels, 8)
    return Exported(backbone, scale, network.pool or backbone.own_pool(), network.size, about, "", place.path)


def check_whole(network: Network, backbone: Backbone, who: str) -> None:
    """Refuses weights that lack a part of their network, hold more than it, or other numbers.

    Args:
        network: As released.
        backbone: As timm builds it.
        who: Begins the error.

    Raises:
        UserError: With the names.
    """
    needed, there = backbone.timm_state(), network.state
    left = [name for name in there if name not in needed]
    wrong = {
        "lacks": [f"{name}{did_you_mean(name, left)}" for name in needed if name not in there],
        "has beside it": left,
        "has in other shapes": [
            f"{name} {tuple(there[name].shape)} for {tuple(needed[name].shape)}"
            for name in needed if name in there and there[name].shape != needed[name].shape
        ],
        "has as another kind of numbers": [
            f"{name} ({str(there[name].dtype).removeprefix('torch.')})"
            for name in needed if name in there and there[name].is_floating_point() != needed[name].is_floating_point()
        ],
    }  # fmt: skip
    told = [
        f"{what} {', '.join(names[:_SHOWN])}{f' and {len(names) - _SHOWN} more' if len(names) > _SHOWN else ''}"
        for what, names in wrong.items() if names
    ]  # fmt: skip
    if told:
        raise UserError(f"{who} is no whole {network.layout} network ({network.architecture}): it {'; it '.join(told)}")


def for_images(
    start: Exported, images: ImageSet, *, img_size: int | None = None, patch_size: int | None = None
) -> Exported:
    """A network for some images: channels, input and patches are adapted, and their pixels standardised.

    Its own pixel statistics stay where it names some and the images are of its kind, as many channels of as many bits;
    else those of the images are measured.

    Args:
        start: Left as it is.
        images: What it will see.
        img_size: Side of the input in pixels; None for its own.
        patch_size: Side of a patch in pixels; None for its own.

    Raises:
        UserError: For sizes that the network cannot have, and a first layer that cannot be adapted.
    """
    channels, bits = images.form
    same = (channels, bits) == (start.backbone.channels, start.scale.bits) and not start.about.get("untold_scale")
    backbone = adapt(start.backbone, img_size=img_size, patch_size=patch_size, channels=channels)
    scale = start.scale if same else measure_scale(images)
    return start._replace(backbone=backbone, scale=scale, size=backbone.img_size)


def layout_of(start: Exported) -> dict[str, Any]:
    """In which layout weights were released, and what lay beside them, where that is known.

    Args:
        start: As read.
    """
    return {key: start.about[key] for key in ("layout", "beside") if key in start.about}


_BROUGHT = ("name", "width", "depth", "heads", "positions", "init", "args")
_OF_IMAGES = ("img_size", "in_chans", "num_classes")


def network_of_weights(model: ModelConfig, needs: Needs) -> tuple[ModelFacts, ResolvedModel]:
    """The network that ``--model.weights`` brings, and every size of it as a number.

    Args:
        model: Names the weights; input, patches and pooling may be other ones.
        needs: What a method asks of a network.

    Raises:
        UserError: As ``read_start``, and for sizes beside the weights, or a network that is not enough.
    """
    if beside := [name for name in _BROUGHT if getattr(model, name) is not None]:
        raise UserError(
            f"--model.{beside[0]} cannot be given beside --model.weights {model.weights}, which bring their network; "
            "leave it out"
        )
    start = read_start(model.weights or "", "--model.weights")
    backbone, size = start.backbone, model.img_size or start.size
    args = {key: value for key, value in backbone.model_args.items() if key not in _OF_IMAGES}
    try:
        shape = model_facts(backbone.architecture, args, needs=needs)
    except UserError as error:
        raise UserError(str(error).replace("--model.name", "--model.weights")) from error
    if not isinstance(backbone, ViTBackbone):
        check_pool(model.pool or "mean", class_token=False, option="--model.pool")
        taken = settle(ResolvedModel, model, name=backbone.architecture, args=args, img_size=size, pool="mean")
        return shape._replace(img_size=start.size), taken
    pool = model.pool or ("mean" if start.pool == "mean" else "cls")
    check_pool(pool, backbone.class_token, "--model.pool")
    positions = "sincos" if start.about.get("positions") == "sincos" else "learnable"
    taken = settle(
        ResolvedModel, model, name=backbone.architecture, img_size=size,
        patch_size=model.patch_size or backbone.patch_size, width=backbone.embed_dim, depth=backbone.depth,
        heads=backbone.heads, pool=pool, init=start.about.get("init") or "xavier",
        positions="none" if backbone.position_table() is None else positions,
    )  # fmt: skip
    check_shape(taken)
    own = shape._replace(
        img_size=start.size, patch_size=backbone.patch_size, width=backbone.embed_dim, depth=backbone.depth,
        heads=backbone.heads, class_token=backbone.class_token,
    )  # fmt: skip
    return own, taken


def started_backbone(model: ResolvedModel, channels: int) -> Backbone:
    """What a run with ``--model.weights`` trains, at its input and patches.

    Args:
        model: Resolved.
        channels: C of the images.

    Raises:
        UserError: As ``read_start`` and ``for_images``.
    """
    start = read_start(model.weights or "", "--model.weights")
    return adapt(start.backbone, img_size=model.img_size, patch_size=model.patch_size, channels=channels)
