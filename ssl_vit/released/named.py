"""Weights that timm knows by name: from the Hugging Face Hub, or the cache where there is no network."""

from __future__ import annotations

from typing import Any

import huggingface_hub
import timm
from huggingface_hub.errors import GatedRepoError

from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.data.scale import PixelScale
from ssl_vit.released.layouts import Network


def check_named(name: str, option: str) -> int:
    """Side of the input in pixels of weights that timm knows; nothing is downloaded.

    Args:
        name: timm's, with its tag.
        option: Which option names it.

    Raises:
        UserError: For a name that timm has no weights of.
    """
    known = timm.list_pretrained()
    if name not in known:
        close = did_you_mean(name, timm.list_pretrained(f"*{name.partition('.')[0]}*") or known)
        raise UserError(f"{option} {name} is neither a folder nor a timm model with pretrained weights{close}")
    cfg: Any = timm.get_pretrained_cfg(name)
    return int(cfg.input_size[-1])


def read_named(name: str, option: str) -> Network:
    """Weights that timm has by that name, as they were released.

    Args:
        name: timm's, with its tag.
        option: Which option names it.

    Raises:
        UserError: For a name that timm has no weights of, and where they cannot be downloaded and are not cached.
    """
    from ssl_vit.data.sources.hub import ask_hub  # it imports datasets, which most runs do without

    check_named(name, option)
    released: Any = timm.get_pretrained_cfg(name)
    try:
        ask_hub(lambda timeout: huggingface_hub.HfApi().model_info(str(released.hf_hub_id), timeout=timeout))
        model: Any = timm.create_model(name, pretrained=True, num_classes=0)
    except GatedRepoError as error:
        raise UserError(
            f"{option}: {name} needs a login to the Hugging Face Hub: hf auth login, then repeat"
        ) from error
    except Exception as error:  # whatever the network, the hub or a cache raise
        raise UserError(
            f"{option}: {name} could not be downloaded and is not in the cache; name a folder that timm saved, or the "
            "authors' file"
        ) from error
    cfg = model.pretrained_cfg
    channels, _, size = cfg["input_size"]
    args: dict[str, Any] = {"in_chans": channels, **({"img_size": size} if cfg.get("fixed_input_size") else {})}
    return Network(
        "timm", name.partition(".")[0], args, size, model.state_dict(), (), pool=None,
        scale=PixelScale(tuple(cfg["mean"]), tuple(cfg["std"]), 8),
    )  # fmt: skip
