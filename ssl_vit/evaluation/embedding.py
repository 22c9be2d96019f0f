"""One vector per image of any source, labelled or not: what ``embed`` writes and an atlas is made of."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from ssl_vit.configs import DataConfig, EmbedConfig, EmbedRecipe, LabelledDataConfig, PoolConfig, SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.known import KnownLabels, open_known
from ssl_vit.data.sources.locate import is_read, same_source
from ssl_vit.data.sources.opening import roots_with
from ssl_vit.evaluation.feature_table import write_features
from ssl_vit.evaluation.features import backbone_extractor, images_at_once
from ssl_vit.evaluation.input_format import as_trained, fitted
from ssl_vit.evaluation.store import identity_of, kept_features
from ssl_vit.exports.origin import as_decoded
from ssl_vit.exports.timm_folder import Exported
from ssl_vit.released.starts import load_start
from ssl_vit.training import launch


class Embedded(NamedTuple):
    """Vectors of the readable images of a source."""

    images: ImageSet
    """Those that could be read, without labels."""
    x: Float[np.ndarray, "n D"]
    known: KnownLabels | None
    """Their labels, where any has one."""
    unreadable: tuple[str, ...]
    """Images that could not be read, and why; they are not in here."""

    def names(self) -> list[str]:
        """Where each image lies."""
        return [self.images.where(i) for i in range(len(self.images))]


def embed_images(
    exported: Exported, asked: DataConfig, cfg: EmbedConfig, *, device: torch.device, writes: bool = True
) -> Embedded:
    """Opens images and computes a vector of each, cut and standardised as evaluation does it.

    Args:
        exported: The backbone.
        asked: Where the images are; an empty path means those that the backbone was trained on.
        cfg: How vectors are computed.
        device: Where to compute.
        writes: Whether this process may keep vectors.

    Raises:
        UserError: For images of another kind than the network was built for, or more than 1 % that cannot be read.
    """
    images, known = open_known(source_of(exported, asked))
    canvas, window = as_decoded(exported.about, asked)
    images = as_trained(images, exported).on_canvas(canvas, exported.size, window)
    exported = fitted(images, exported)
    backbone, scale, size = exported.backbone, exported.scale, exported.size
    how = {"size": size, "pool": exported.pool}
    bf16 = (launch.auto_precision() if cfg.precision == "auto" else cfg.precision) == "bf16"
    identity = identity_of(backbone, scale, bf16=bf16, **how)
    extract = backbone_extractor(backbone, scale, device=device, bf16=bf16, **how)
    kept = exported.place / "features" if cfg.keep_features else None
    at_once = images_at_once(cfg.batch_size, size, device)
    unlabelled = replace(images, labels=np.zeros(len(images), dtype=np.int64))  # features go with labels elsewhere
    found = kept_features(kept, extract, identity, unlabelled, writes=writes, batch_size=at_once, device=device)
    index: Int[np.ndarray, " n"] = found.index
    return Embedded(images.subset(index), found.x, None if known is None else known.subset(index), found.left_out)


def embed_to(path: Path, cfg: EmbedRecipe) -> None:
    """What ``ssl-vit embed`` does: a table of every image of a source.

    Args:
        path: The table's file.
        cfg: What ``--help`` lists.

    Raises:
        UserError: As ``embed_images``, and where there is no network.
    """
    exported = load_start(cfg.backbone)
    source = source_of(exported, cfg.data)
    spare(path, source)
    accelerator = launch.join("fp32")
    launch.use_cores(accelerator, exported.size)
    main = accelerator.is_main_process
    found = embed_images(exported, cfg.data, cfg.embed, device=accelerator.device, writes=main)
    if main:
        about = {"backbone": str(exported.folder.resolve()), "weights": exported.weights_hash, "pool": exported.pool}
        write_features(found, path, about)
        print(f"{path}: {in_words(found)}; {found.x.shape[1]:,} numbers each")


def spare(out: Path, source: DataConfig) -> None:
    """Refuses to write over what is read.

    Args:
        out: To be written.
        source: Where images and their labels are.

    Raises:
        UserError: Where they are read from that file, or would be the next time.
    """
    if is_read(source, out):
        why = f"would be taken for images or labels by the next reading of {source.path}"
        why = "is what images or labels are read from, which it would replace" if out.exists() else why
        raise UserError(f"--out {out} {why}; name another")


def in_words(found: Embedded) -> str:
    """How many images of which source, how many of them have labels, and how many could not be read.

    Args:
        found: What ``embed_images`` returned.
    """
    words = f"{len(found.images):,} images from {found.images.name}"
    if found.known is None:
        words += ", without labels"
    else:
        kind = {"class": "classes", "multilabel": "labels each", "regression": "number(s) each"}[found.known.kind]
        count = int(found.known.given.sum())
        share = "all" if count == len(found.images) else f"{count:,}"
        words += f", {share} of them labelled ({len(found.known.names)} {kind})"
    return words + (f", {len(found.unreadable):,} left out (see above)" if found.unreadable else "")


def source_of(exported: Exported, asked: DataConfig) -> DataConfig:
    """The images to open: what the command line leaves open is as the network's run was told of the same source.

    Args:
        exported: The network.
        asked: Where the images are; an empty path means those that the network was trained on.

    Raises:
        UserError: For an empty path where nothing is recorded.
    """
    recorded = exported.about.get("data")
    if recorded is None:
        if not asked.path:
            raise UserError("the network does not say what it was trained on; name images with --data.path")
        return asked
    own, judged = PoolConfig(**recorded), LabelledDataConfig(**exported.about["eval_data"])
    path = asked.path or own.path
    open_ones = [f.name for f in fields(SourceConfig) if getattr(asked, f.name) is None]
    told: dict[str, str | bool | None] = {}
    if "," in (own.image_column or ""):  # they are the channels of one image, wherever it lies
        told["image_column"] = own.image_column
    for source, place in ((own, own.path), (judged, judged.path or own.path)):
        if same_source(path, place):
            told |= {k: v for k, v in vars(source).items() if k in open_ones and v is not None}
    if not same_source(path, own.path) and asked.root is None:
        told["root"] = roots_with(own.path, own.root)
    chosen = {k: v for k, v in told.items() if k in open_ones and k not in ("path", "split", "test_split")}
    return replace(asked, path=path, **chosen)
