"""From options, or from an exported folder, to a backbone."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import timm
import torch
from timm.layers.attention import Attention
from timm.layers.patch_embed import PatchEmbed, resample_patch_embed
from timm.models import adapt_input_conv
from timm.models.vision_transformer import Block, VisionTransformer

from ssl_vit.configs import ModelConfig, ResolvedModel
from ssl_vit.configs.networks import FAMILIES, NETWORKS, ModelFacts, Needs, meets, wanted
from ssl_vit.core.errors import UserError, article, did_you_mean, one_line
from ssl_vit.methods import LABELLED, METHODS
from ssl_vit.models import families as families  # registered with timm
from ssl_vit.models.backbone import Backbone, with_tokens
from ssl_vit.models.blocks import init_weights
from ssl_vit.models.pooled import PooledBackbone, readable
from ssl_vit.models.positions import resample
from ssl_vit.models.stochastic_depth import LARGEST
from ssl_vit.models.tokens import FamilyTokens, gives_tokens, looks_beyond
from ssl_vit.models.vit import ViTBackbone


def facts_of(
    model: ModelConfig, short_side: int = 1, preset: str | None = None, *, needs: Needs = "pooled"
) -> ModelFacts:
    """Looks up the network that options ask for, and refuses it in their words.

    Args:
        model: As given; its name may be a short one.
        short_side: Median shorter side of the images in pixels, where no network is named.
        preset: As given, where no network is named.
        needs: What the method asks of it.

    Raises:
        UserError: As ``model_facts``.
    """
    name, args = wanted(model, short_side, preset)
    return model_facts(name, args, needs=needs, typed=model)


def model_facts(
    name: str, args: dict[str, Any] | None = None, *, needs: Needs = "pooled", typed: ModelConfig | None = None
) -> ModelFacts:
    """Looks a timm model up (with or without a pretrained tag) without allocating its weights.

    Args:
        name: timm's.
        args: For its constructor.
        needs: What the method asks of it.
        typed: What a person asked for, where that is known: errors tell of it.

    Raises:
        UserError: For a name timm does not know, arguments that its class does not take (those of a plain ViT are for
            others to refuse), a model that does not make one vector of an image, or one that offers less than needed.
    """
    said = (typed and typed.name) or name
    if not timm.is_model(name):
        raise UserError(f"--model.name {said} is neither a short name nor a timm model{_did_you_mean(said)}")
    model, args = on_meta(name, {}), args or {}
    if _why_not_plain(model) is None:
        vit: Any = model
        return ModelFacts(
            vit.patch_embed.img_size[0], vit.patch_embed.proj.kernel_size[0], vit.embed_dim, len(vit.blocks),
            vit.blocks[0].attn.num_heads, vit.has_class_token,
        )  # fmt: skip
    check_args(name, args, said, (typed.args or {}) if typed else args)
    facts = _pooled_facts(name, args)
    if not meets(facts.offers, needs):
        fitting = ", ".join(method for method, entry in METHODS.items() if meets(facts.offers, entry.needs))
        raise UserError(
            f"--model.name {said} does not go with a method that leaves out or replaces patches: {facts.lacks}. "
            f"It goes with {fitting} and training on labels ({', '.join(LABELLED)}); networks for such a method are, "
            "for example, vit_small_patch16_224, beit_micro, relative_micro, deit_micro"
        )
    return facts


def _did_you_mean(name: str) -> str:
    """Names near one that is none; of a family without its size, all sizes."""
    sizes = [known for known in (*NETWORKS, *FAMILIES) if known.startswith(f"{name}_")]
    if sizes:
        return f"; did you mean {', '.join(sizes)}?"
    return did_you_mean(name.partition(".")[0], [*NETWORKS, *FAMILIES, *timm.list_models()])


def _offers(model: Any) -> tuple[Needs, str]:
    """What a model that is no plain ViT offers, and why no more."""
    if not gives_tokens(model):
        strides = {stage["reduction"] for stage in getattr(model, "feature_info", None) or ()}
        tied = len(strides) > 1 or type(model).__module__.startswith(f"{families.__name__}.")
        what = (
            "convolutions, windows or stages tie neighbouring places together" if tied else "tokens are not made here"
        )
        return "pooled", f"it is {article(type(model).__name__)}, whose {what}"
    if looks_beyond(model):
        kind = article(type(model.patch_embed).__name__)
        return "tokens", f"its stem, {kind}, looks beyond each patch, so hidden pixels would leak into visible tokens"
    return "dropping", ""


def on_meta(name: str, args: Mapping[str, Any]) -> torch.nn.Module:
    """A timm model without weights and classifier, for looking at.

    Args:
        name: timm's.
        args: Arguments of ``timm.create_model``, as they stand in JSON.
    """
    return _looked_at(name, json.dumps(args, sort_keys=True))


@lru_cache(maxsize=8)
def _looked_at(name: str, args: str) -> torch.nn.Module:
    plain = timm.model_entrypoint(name).__module__ == timm.models.vision_transformer.__name__
    idle = {"weight_init": "skip"} if plain else {}  # drawing weights that are nowhere takes longer than all else
    with torch.device("meta"):
        return timm.create_model(name, pretrained=False, num_classes=0, **{**idle, **json.loads(args)})


def _create(name: str, args: Mapping[str, Any]) -> torch.nn.Module:
    """A timm model without classifier; one that is no plain ViT has places for stochastic depth where it can."""
    sketch = on_meta(name, args)
    places = _why_not_plain(sketch) is not None and _takes(sketch, "drop_path_rate")
    rate = {"drop_path_rate": LARGEST} if places else {}
    return timm.create_model(name, pretrained=False, num_classes=0, **{**args, **rate})


def _pooled_facts(name: str, args: dict[str, Any]) -> ModelFacts:
    with torch.device("meta"):
        model: Any = _create(name, args)
    own, info = model.pretrained_cfg["input_size"][-1], getattr(model, "feature_info", None)
    stride = info[-1]["reduction"] if info else 1
    sized = _takes(model, "img_size") and bool(model.pretrained_cfg.get("fixed_input_size"))
    try:
        backbone = _without_sizes(model, name, args, own)
    except UserError:  # arguments may fit images of another size
        near = readable(name, {**args, "img_size": own} if sized else args, own)
        if not near:
            raise
        own = near[-1]
        with torch.device("meta"):
            model = _create(name, {**args, "img_size": own} if sized else args)
        backbone = _without_sizes(model, name, args, own)
    offers, lacks = _offers(model)
    flexible = _takes(model, "strict_img_size") or backbone.width_at(own + stride) == backbone.embed_dim
    return ModelFacts(
        own, stride, backbone.embed_dim, backbone.depth, 1, False, plain=False, flexible=flexible,
        sized=sized, drop_path=backbone.draws_drop_path, offers=offers, lacks=lacks,
    )  # fmt: skip


_OURS = {
    "img_size": "that is --model.img_size", "in_chans": "the images say it", "num_classes": "the labels say it",
    "drop_path_rate": "that is the drop_path of what is trained", "device": "the run says it",
    "dtype": "the run says it",
}  # fmt: skip
_DEPTHS = ("depth", "depths", "layers", "conv_layers", "stages")
"""Arguments that count blocks, one number or one for every stage; DAT's stages spell theirs."""


def check_args(name: str, args: Mapping[str, Any], said: str, given: Mapping[str, Any]) -> None:
    """Refuses arguments that the constructor of a timm model does not have or cannot be built with.

    Args:
        name: timm's.
        args: All of them.
        said: What a person called the network.
        given: Those of ``args`` that a person gave.

    Raises:
        UserError: Naming the argument.
    """
    kind = type(on_meta(name, {}))
    names, more = class_arguments(kind)
    names = [*(n for n in _of_entry(name) if n not in names), *names]
    known = [key for key in names if key not in (*_OURS, "cfg") and not key.endswith("drop_rate")]
    for key in args:
        if key in _OURS or key.endswith("drop_rate"):
            raise UserError(f"--model.args: {key} cannot be given, {_OURS.get(key, 'dropout is off in every network')}")
        if key not in known and (not more or not _builds(name, {key: args[key]})):
            raise UserError(
                f"--model.args: {kind.__name__} ({said}) has no {key}, it has {', '.join(known)}"
                f"{did_you_mean(key, known)}"
            )
        if key in _DEPTHS and any(_empty(part) for part in _flat(args[key])):
            raise UserError(
                f"--model.args {json.dumps({key: args[key]})} leaves {said} or a stage of it without blocks; "
                "give 1 or more"
            )
    if args:
        try:
            on_meta(name, args)
        except Exception as error:  # whatever a constructor raises at values that are none
            raise UserError(
                f"--model.args {json.dumps(given)}: {said} cannot be built so ({one_line(error)}); give values of the "
                f"kind that {kind.__name__} has"
            ) from error


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _empty(part: Any) -> bool:
    return part == "" or (isinstance(part, int | float) and part < 1)


def _of_entry(name: str) -> list[str]:
    """Names that the function which timm calls for a model takes itself, beside what it hands on."""
    parameters = inspect.signature(timm.models.model_entrypoint(name.partition(".")[0])).parameters.values()
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "pretrained"]


def _builds(name: str, args: Mapping[str, Any]) -> bool:
    """Whether a model whose constructor takes any argument knows what to do with these."""
    try:
        on_meta(name, args)
    except TypeError:
        return False
    except Exception:  # a value that is none: told with all of them
        return True
    return True


def _takes(model: torch.nn.Module, argument: str) -> bool:
    return argument in class_arguments(type(model))[0]


def class_arguments(kind: type[torch.nn.Module]) -> tuple[list[str], bool]:
    """Names that the constructor of a class takes, those it hands on to its base too, and whether it takes others.

    Args:
        kind: Of a network.
    """
    names: list[str] = []
    for base in kind.__mro__:
        if base is torch.nn.Module:
            return names, True
        if "__init__" in vars(base):
            parameters = list(inspect.signature(base).parameters.values())
            names += [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
            if all(p.kind is not p.VAR_KEYWORD for p in parameters):
                return names, False
    return names, True


def _why_not_plain(model: torch.nn.Module) -> str | None:
    """None for a plain ViT; as one, anything else would compose silently wrong or fail late."""
    if type(model) is not VisionTransformer:
        return f"it is {article(type(model).__name__)}"
    if type(model.patch_embed) is not PatchEmbed:
        return f"its patch embedding is {article(type(model.patch_embed).__name__)}"
    if any(type(b) is not Block or type(b.attn) is not Attention for b in model.blocks):
        block = model.blocks[0]
        return f"its blocks are {type(block).__name__} with {type(getattr(block, 'attn', block)).__name__}"
    return None


def timm_args(cfg: ResolvedModel, channels: int) -> dict[str, Any]:
    """Arguments of ``timm.create_model`` for a resolved config: no classifier, norm before pooling."""
    if cfg.patch_size is None:  # no plain ViT
        model: Any = on_meta(cfg.name, {})
        args: dict[str, Any] = {**(cfg.args or {}), "in_chans": channels}
        if model.pretrained_cfg.get("fixed_input_size"):
            args["img_size"] = cfg.img_size
        if _takes(model, "strict_img_size"):  # Swin: images of other sizes too
            args["strict_img_size"] = False
        elif _takes(model, "dynamic_img_size"):  # hybrid and distilled ViTs, whose positions are then resampled
            args["dynamic_img_size"] = True
        return args
    args = {
        "img_size": cfg.img_size, "patch_size": cfg.patch_size, "in_chans": channels, "embed_dim": cfg.width,
        "depth": cfg.depth, "num_heads": cfg.heads, "global_pool": "avg" if cfg.pool == "mean" else "token",
        "fc_norm": False, "pos_embed": "none" if cfg.positions == "none" else None,
    }  # fmt: skip
    return {key: value for key, value in args.items() if value is not None}


def build_backbone(cfg: ResolvedModel, channels: int) -> Backbone:
    """Builds a backbone with random weights from torch's global generator (seed it first).

    Sine-cosine positions are filled in and trainable; an objective may freeze them.

    Args:
        cfg: Resolved.
        channels: C of the images.

    Raises:
        UserError: When sizes do not divide, or the model cannot read images of that size.
    """
    check_shape(cfg)
    return make_backbone(
        cfg.name, timm_args(cfg, channels), positions=cfg.positions or "learnable", img_size=cfg.img_size,
        init=cfg.init or "xavier",
    )  # fmt: skip


def make_backbone(
    architecture: str, model_args: dict[str, Any], *, positions: str = "learnable", img_size: int | None = None,
    init: Literal["xavier", "trunc_normal"] = "xavier",
) -> Backbone:  # fmt: skip
    """A backbone by timm's name and arguments: with tokens where timm's class is known, else one vector per image.

    Args:
        architecture: timm's model name.
        model_args: Arguments of ``timm.create_model``.
        positions: ``sincos`` fills a plain ViT's position embedding with that table, ``factorised`` replaces it by one
            table per axis; otherwise it stays as the arguments make it.
        img_size: Side of the input in pixels, where the arguments of a model that is no plain ViT do not say it;
            default: the model's own.
        init: What a plain ViT's weights are drawn from.

    Raises:
        UserError: When the model does not make one vector of an image.
    """
    model: Any = _create(architecture, model_args)
    if _why_not_plain(model) is not None:
        own = model_args.get("img_size", model.pretrained_cfg["input_size"][-1])
        return _without_sizes(model, architecture, model_args, img_size or own)
    init_weights(model, init)
    backbone = ViTBackbone(model, architecture, model_args)
    if positions == "sincos":
        backbone.set_sincos_positions()
    elif positions == "factorised":
        backbone.set_factorised_positions()
    return backbone


def _without_sizes(model: torch.nn.Module, architecture: str, args: dict[str, Any], size: int) -> PooledBackbone:
    """A backbone of a model that is no plain ViT: with tokens, where they can be had."""
    kind = FamilyTokens if gives_tokens(model) else PooledBackbone
    return kind(model, architecture, args, size)


def check_sizes(backbone: Backbone, own: int, sizes: Mapping[str, int]) -> None:
    """Refuses a network that cannot read images of several sizes, as multi-crop has them.

    Args:
        backbone: As built for images of its ``own`` size.
        own: Side in pixels.
        sizes: Sides of crops in pixels: of ``global`` and ``local`` ones.

    Raises:
        UserError: Naming the model, the side and what to do.
    """
    for kind, size in sizes.items():
        if isinstance(backbone, PooledBackbone):
            reads, why = backbone.width_at(size) == backbone.embed_dim, f"beside those of {own}"
        else:
            patch = with_tokens(backbone, "multi-crop").patch_size
            reads, why = size % patch == 0, f"which are no multiple of its patches of {patch}"
        if not reads:
            without = "--crops.local_crops 0, " if kind == "local" else ""
            raise UserError(
                f"{backbone.architecture} cannot read {kind} crops of {size} pixels {why}; use {without}"
                f"--crops.{kind}_size {own}, or another --model.name, for example vit_small_patch16_224"
            )


def check_shape(cfg: ModelConfig) -> None:
    """Refuses sizes of a plain ViT that do not divide.

    Raises:
        UserError: With the nearest sizes that do.
    """
    if cfg.patch_size is None:  # no plain ViT: its sizes are tried when it is built
        return
    size, patch, width, heads = cfg.img_size, cfg.patch_size, cfg.width, cfg.heads
    assert size and patch and width and heads
    if size % patch:
        below = size // patch * patch
        options = f"{below} or {below + patch}" if below else f"{patch}"
        raise UserError(
            f"--model.img_size {size} is not a multiple of --model.patch_size {patch}; "
            f"use an image size of {options}, or a patch size that divides {size}"
        )
    if width % heads:
        raise UserError(f"--model.width {width} is not a multiple of --model.heads {heads}")
    if cfg.positions == "sincos" and width % 4:
        raise UserError(f"--model.positions sincos needs a --model.width that is a multiple of 4, got {width}")
    if cfg.positions == "factorised" and width % 2:
        raise UserError(f"--model.positions factorised needs an even --model.width, got {width}")


def adapt(
    backbone: Backbone, *, img_size: int | None = None, patch_size: int | None = None, channels: int | None = None
) -> Backbone:
    """The same network for another input or patch size, or other channels: what training on other images starts from.

    Positions are interpolated to the new grid (ViT, section 3.2) while rows of class and register tokens stay. The
    patch projection is multiplied by the pseudo-inverse of the resizing of patches (Beyer et al. 2023, "FlexiViT",
    section 3.4), so that an enlarged patch gives the token of the original one. A model that is no plain ViT reads
    images of another size as it is, or not at all. Channels follow timm's rule: for one, the weights of the first layer
    are added up; for other numbers they are repeated in turn, times old over new.

    Args:
        backbone: Left as it is; it comes back where nothing changes.
        img_size: Side of the input in pixels; None for the backbone's own.
        patch_size: Side of a patch in pixels; None for the backbone's own.
        channels: C of the images; None for the backbone's own.

    Raises:
        UserError: When the image size is no multiple of the patch size, or cannot be read, or there are no patches, or
            timm's rule does not fit the first layer.
    """
    if channels is not None and channels != backbone.channels:
        backbone = _with_channels(backbone, channels)
    name, size = backbone.architecture, img_size or backbone.img_size
    if not isinstance(backbone, ViTBackbone):
        if patch_size is not None:
            raise UserError(f"--model.patch_size {patch_size} is for plain ViTs; {name} has no patches")
        if isinstance(backbone, PooledBackbone) and size != backbone.img_size:
            backbone = copy.deepcopy(backbone)
            backbone.read_at(size)
        return backbone
    patch = patch_size or backbone.patch_size
    if (size, patch) == (backbone.img_size, backbone.patch_size):
        return backbone
    check_shape(ModelConfig(None, size, patch, backbone.embed_dim, heads=1, positions="learnable"))
    new = with_tokens(make_backbone(name, {**backbone.model_args, "img_size": size, "patch_size": patch}), "adapt")
    state, projection = dict(backbone.timm_state()), "patch_embed.proj.weight"
    state[projection] = resample_patch_embed(state[projection], [patch, patch])
    if "pos_embed" in state:
        state["pos_embed"] = resample(state["pos_embed"], backbone.grid, new.grid, prefix=backbone.embedded_prefix)
    new.load_timm_state(state)
    return new


def _with_channels(backbone: Backbone, channels: int) -> Backbone:
    """The same network with another first layer."""
    name, state = backbone.architecture, dict(backbone.timm_state())
    cfg: Any = getattr(on_meta(name, {}), "pretrained_cfg", {})
    first = f"{cfg.get('first_conv')}.weight"
    new = make_backbone(name, {**backbone.model_args, "in_chans": channels}, img_size=backbone.img_size)
    try:
        state[first] = adapt_input_conv(channels, state[first], base_chans=backbone.channels)
        new.load_timm_state(state)
    except (KeyError, NotImplementedError, RuntimeError) as error:
        raise UserError(
            f"{name} reads {backbone.channels} channel(s), and its first layer cannot be adapted to {channels}; use "
            "another network, or images of that kind"
        ) from error
    return new
