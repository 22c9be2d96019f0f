"""Any timm model that gives one vector per image: convolutional networks and hierarchical transformers."""

from __future__ import annotations

import warnings
from contextlib import suppress
from fnmatch import fnmatch
from math import isqrt
from typing import Any, Literal

import timm
import torch
from jaxtyping import Float
from timm.models._manipulate import group_with_matcher
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from ssl_vit.configs.networks import short_name
from ssl_vit.core.errors import UserError, one_line
from ssl_vit.models.backbone import Backbone, Pool
from ssl_vit.models.batchnorm import synchronise_batch_norm, takes_batch_statistics
from ssl_vit.models.stochastic_depth import DropPlaces

_FAILS = (AssertionError, RuntimeError, ValueError, TypeError, IndexError)
"""What models raise at images of a size that is not theirs."""
_TRIES = 16
"""So many sizes are tried below one that cannot be read, and above."""


class PooledBackbone(Backbone):
    """A timm model's own pooled feature, before the classifier: what supervised training, DINO and every probe need.

    Weights start as timm initialises the model (the project's own initialisation is for plain ViTs). timm draws dropout
    and stochastic depth from torch's global generator: the first is off, the second by given numbers (``DropPlaces``).
    Batch normalisation uses the statistics of all processes (``SynchronisedBatchNorm``): the loss of a batch is not the
    mean of its halves, and under gradient accumulation statistics are those of one micro-batch.
    """

    class_token = False

    def __init__(self, model: nn.Module, architecture: str, model_args: dict[str, Any], img_size: int) -> None:
        """Wraps a timm model; batch normalisation, dropout and stochastic depth in it are replaced.

        Args:
            model: Without classifier; built with ``drop_path_rate=LARGEST`` where it takes one.
            architecture: timm's name of it.
            model_args: Further arguments of ``timm.create_model`` that build the same network.
            img_size: Side of the input in pixels.

        Raises:
            UserError: When the model does not make one vector of an image of that size.
        """
        super().__init__()
        self.places = DropPlaces(model)
        self.draws_drop_path = bool(self.places.shares)
        _switch_off_dropout(model)
        synchronise_batch_norm(model)
        self.model = model
        self.architecture = architecture
        self.model_args = model_args
        self.channels = int(model_args.get("in_chans", 3))
        cfg: Any = model.pretrained_cfg
        names = cfg.get("classifier") or ()
        self.classifier = (names,) if isinstance(names, str) else tuple(names)
        # The name of no parameter: what no group matches belongs to the head, above the last layer.
        named = [(name, None) for name, _ in model.named_parameters()]
        matcher = getattr(model, "group_matcher", None)
        groups: Any = (
            {name: 1 for name, _ in named} | {"": 2}
            if matcher is None
            else group_with_matcher(iter([*named, ("", None)]), matcher(coarse=False), reverse=True)
        )
        self.depth = groups.pop("") - 1
        self._layers: dict[str, int] = groups
        width = self.width_at(img_size)
        if width is None or not _makes_vectors(model, width):
            raise UserError(_no_vector(model, architecture, model_args, img_size))
        self.embed_dim, self.img_size = width, img_size

    def width_at(self, size: int) -> int | None:
        """Numbers in the vector of an image with a side of that many pixels; None where the model cannot read it."""
        found = _width(self.model, self.channels, size)
        return found if isinstance(found, int) else None

    def read_at(self, size: int) -> None:
        """Has the model read images of another size from now on.

        Args:
            size: Side in pixels.

        Raises:
            UserError: Where it cannot: it is as timm built it for its own size, and timm cannot change that.
        """
        change = getattr(self.model, "set_input_size", None)
        if self.width_at(size) != self.embed_dim and change is not None and "img_size" in self.model_args:
            with suppress(*_FAILS), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's, about how timm interpolates a bias
                change(img_size=(size, size))
                self.model_args = {**self.model_args, "img_size": size}
        if self.width_at(size) != self.embed_dim:
            raise UserError(
                f"--model.img_size {size}: this {self.architecture} cannot read images of that size; leave it out, "
                f"they are then resized to {self.img_size} pixels"
            )
        self.img_size = size

    def takes_head(self) -> bool:
        """Whether timm's classifier of this model is a linear layer on the pooled vector and nothing else."""
        with torch.device("meta"):
            whole = timm.create_model(self.architecture, num_classes=1, **self.model_args).state_dict()
        added = {k: tuple(v.shape) for k, v in whole.items() if k not in self.timm_state()}
        weights = {f"{name}.weight": (1, self.embed_dim) for name in self.classifier}
        return bool(weights) and added == weights | {f"{name}.bias": (1,) for name in self.classifier}

    def undecayed(self) -> set[str]:
        """What timm's model names, by pattern or whole."""
        told: Any = getattr(self.model, "no_weight_decay", set[str])
        patterns = [f"model.{name}" for name in told()]
        return {name for name, _ in self.named_parameters() if any(fnmatch(name, pattern) for pattern in patterns)}

    def recompute_activations(self) -> None:
        """By residual block, else as timm does it for this model.

        Raises:
            UserError: Where timm does not, or batch normalisation would count every batch twice.
        """
        model: Any = self.model
        if takes_batch_statistics(model):
            raise UserError(
                f"--fit.recompute true: {self.architecture} has batch normalisation, which must see a batch once"
            )
        if self.draws_drop_path:
            return self.places.recompute(model)
        try:
            model.set_grad_checkpointing(True)
        except (AttributeError, AssertionError):
            raise UserError(f"--fit.recompute true: timm cannot do that for {self.architecture}") from None

    def keep_channels_together(self) -> None:
        """``torch.channels_last`` weights; what a convolution makes with them is laid out alike."""
        self.model.to(memory_format=torch.channels_last)

    def timm_state(self) -> dict[str, Tensor]:
        """The timm model's state dict."""
        return self.model.state_dict()

    def load_timm_state(self, state: dict[str, Tensor]) -> None:
        """Takes over the timm model's state dict."""
        self.model.load_state_dict(state)

    def layer_id(self, name: str) -> int:
        """As timm groups them: 0 for the stem, then blocks (or stages), depth + 1 for what is above them."""
        return self._layers[name.removeprefix("model.")]

    def forward_pooled(
        self, images: Float[Tensor, "B C H W"], *, pool: Pool, drop: Float[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B E"]:
        """The model's own pooled feature; see ``Backbone.forward_pooled``."""
        if pool != "mean":
            raise ValueError(f"pool {pool}, but {self.architecture} has only one pooled feature, called mean")
        if drop is not None and not self.draws_drop_path:
            raise ValueError(f"{self.architecture} takes no stochastic depth (--supervised.drop_path 0)")
        return self.places.run(self.model, images, drop)

    def drop_rates(self, rate: float) -> Float[Tensor, " L"] | None:
        """As timm spreads it over this model; see ``Backbone.drop_rates``."""
        return self.places.rates(rate)

    def feature_map(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        """The last feature map; see ``Backbone.feature_map``."""
        model: Any = self.model
        return self._as_map(model.forward_features(images), images)

    def place_features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B E h w"]:
        """What the model makes of every place of its last map by itself, as if the whole image were like it.

        What stands behind the pooling, such as ConvNeXt's norm, is in it: a linear classifier of the pooled feature can
        read it.
        """
        model: Any = self.model
        x = model.forward_features(images)
        found = self._as_map(x, images)
        rows = found.permute(0, 2, 3, 1).flatten(0, 2)
        if not isinstance(x, Tensor):
            raise UserError(f"the features of {self.architecture} are several maps; its places have no feature alone")
        if x.ndim == 3:  # as many as prefix tokens would leave one
            alone = rows[:, None].expand(-1, x.shape[1] - found.shape[2] * found.shape[3] + 1, -1)
        else:
            alone = rows[:, None, None] if self._channels_last else rows[:, :, None, None]
        return model.forward_head(alone).unflatten(0, (len(images), *found.shape[2:])).permute(0, 3, 1, 2)

    def pools_places(self) -> bool:
        """Whether the pooled feature is of places, and not of class tokens alone."""
        model: Any = self.model
        weight, training = next(model.parameters()), model.training
        side = self.img_size
        images = torch.zeros(1, self.channels, side, side, device=weight.device, dtype=weight.dtype)
        with torch.no_grad():
            x = model.eval().forward_features(images)
            model.train(training)
            if not isinstance(x, Tensor) or x.ndim != 3:
                return True
            found = self._as_map(x, images)
            other = x.clone()
            other[:, x.shape[1] - found.shape[2] * found.shape[3] :] += torch.linspace(0, 1, x.shape[2]).to(x)
            return not torch.equal(model.forward_head(x), model.forward_head(other))

    def pooled_and_map(
        self,
        images: Float[Tensor, "B C H W"],
        *,
        pool: Literal["cls", "mean", "mean_prenorm"],
        drop: Float[Tensor, " B *L"] | None = None,
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B D h w"]]:
        """The model's features, and what its head makes of them; see ``Backbone.pooled_and_map``."""
        if pool != "mean":
            raise ValueError(f"pool {pool}, but {self.architecture} has only one pooled feature, called mean")
        model: Any = self.model
        x = self.places.run(model.forward_features, images, drop)
        return model.forward_head(x), self._as_map(x, images)

    @property
    def _channels_last(self) -> bool:
        return str(getattr(self.model, "output_fmt", "NCHW")) == "NHWC"

    def _as_map(self, x: Any, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        model: Any = self.model
        if isinstance(x, (tuple, list)):  # of several resolutions: the deepest
            x = x[-1]
        if x.ndim == 4:
            return x.permute(0, 3, 1, 2) if self._channels_last else x
        prefix = getattr(model, "num_prefix_tokens", x.shape[1] - isqrt(x.shape[1]) ** 2)
        places = x.shape[1] - prefix
        rows = round((places * images.shape[2] / images.shape[3]) ** 0.5)
        if not rows or places % rows:
            raise UserError(f"the features of {self.architecture} are no map of an image's places")
        return x[:, prefix:].transpose(1, 2).unflatten(2, (rows, places // rows))


def readable(architecture: str, model_args: dict[str, Any], size: int) -> list[int]:
    """Sides of images that a timm model makes one vector of, the nearest that were found; else its own.

    Args:
        architecture: timm's name of it.
        model_args: Arguments of ``timm.create_model``; with ``img_size`` it is built for every side that is tried.
        size: Side in pixels that it cannot read: one below is looked for and one above.
    """
    try:
        model = _sketch(architecture, model_args)
    except (*_FAILS, KeyError, ZeroDivisionError):
        return []
    info, cfg = getattr(model, "feature_info", None), getattr(model, "pretrained_cfg", None) or {}
    step = max([1, *(stage["reduction"] for stage in info or ())])
    under = range(size // step * step, 0, -step)
    over = range((size // step + 1) * step, size + (_TRIES + 1) * step, step)
    tried = {"below": [s for s in under if s != size][:_TRIES], "above": list(over)}
    found = [next((s for s in sizes if _reads(model, architecture, model_args, s)), None) for sizes in tried.values()]
    own = cfg.get("input_size", (size,))[-1]
    if not any(found) and own != size and _reads(model, architecture, model_args, own):
        found.append(own)
    return sorted(s for s in found if s is not None)


def _sketch(architecture: str, model_args: dict[str, Any]) -> Any:
    with torch.device("meta"):
        return timm.create_model(architecture, pretrained=False, num_classes=0, **model_args)


def _reads(model: Any, architecture: str, model_args: dict[str, Any], size: int) -> bool:
    """Whether a model without weights, or the same one built for such images, makes one vector of them."""
    if "img_size" in model_args:
        try:
            model = _sketch(architecture, {**model_args, "img_size": size})
        except (*_FAILS, ZeroDivisionError):
            return False
    width = _width(model, model_args.get("in_chans", 3), size)
    return isinstance(width, int) and _makes_vectors(model, width)


def _makes_vectors(model: Any, width: int) -> bool:
    return width in (model.num_features, getattr(model, "head_hidden_size", None))


def _width(model: nn.Module, channels: int, size: int) -> int | str:
    """Numbers in the vector of an image with a side of that many pixels; in words why there is none."""
    weight, training = next(model.parameters()), model.training
    images = torch.zeros(1, channels, size, size, device=weight.device, dtype=weight.dtype)
    try:
        with torch.device(weight.device), torch.no_grad():
            found = model.eval()(images)
    except _FAILS as error:
        return _windows(model, size) or one_line(error)
    finally:
        model.train(training)
    if isinstance(found, Tensor) and found.ndim == 2:
        return found.shape[1]
    return "what it makes is none"


def _windows(model: Any, size: int) -> str | None:
    """Which windows do not divide a stage's map, where the stages of a model are known to need that."""
    for stage in getattr(model, "feature_info", None) or ():
        with suppress(AttributeError, KeyError):
            parts = model.get_submodule(stage["module"]).modules()
            places = size // stage["reduction"]
            for window in {part.window for part in parts if isinstance(getattr(part, "window", None), int)}:
                if places % max(1, min(window, places)):
                    return f"windows of {window} x {window} do not divide a map of {places} x {places} places"
    return None


def _no_vector(model: Any, architecture: str, model_args: dict[str, Any], size: int) -> str:
    """The sentence for a model that cannot read images of a size, with the nearest that it can."""
    why = _width(model, int(model_args.get("in_chans", 3)), size)
    why = f"one of {why} numbers, not of {model.num_features}" if isinstance(why, int) else why
    sizes = " or ".join(map(str, readable(architecture, model_args, size)))
    known = short_name(architecture, model_args) or architecture
    return (
        f"{known} does not make one vector of an image of {size} x {size} pixels ({why}); choose "
        f"{f'--model.img_size {sizes}, or ' if sizes else ''}another --model.name, for example resnet50"
    )


def _switch_off_dropout(model: nn.Module) -> None:
    """Dropout at rate 0, whatever the model's own default."""
    for part in model.modules():
        if isinstance(part, _DropoutNd):
            part.p = 0.0
        for name in ("drop_prob", "drop_rate"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
