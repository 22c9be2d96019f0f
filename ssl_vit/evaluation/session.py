"""What every evaluation script begins and ends with: backbone and labelled images in, table and result file out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from ssl_vit.checkpoint import Exported, load_backbone
from ssl_vit.configs import DataConfig, EvalConfig, RunConfig, from_dict, to_dict
from ssl_vit.configs.recipes import KNNRecipe
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources import Labelled, open_labelled
from ssl_vit.data.splits import draw_labels
from ssl_vit.errors import UserError
from ssl_vit.evaluation.features import Extractor, backbone_extractor, pixel_extractor
from ssl_vit.rundir import RunDir, digest


class Session(NamedTuple):
    """A backbone and the images it is judged on."""

    exported: Exported
    data: Labelled
    run: RunDir

    def result(self, method: str, rows: list[dict[str, Any]], protocol: dict[str, Any], seed: int) -> dict[str, Any]:
        """The content of a result file: numbers with the protocol that gives them their meaning."""
        train, test = self.data.train, self.data.test
        return {
            "method": method,
            "rows": rows,
            "protocol": protocol,
            "protocol_hash": digest(protocol),
            "labels_used": len(train),
            "seed": seed,
            "backbone": {
                "folder": str(self.exported.folder), "weights": self.exported.weights_hash, **self.exported.about,
            },
            "data": {"name": test.name, "train": train.fingerprint, "test": test.fingerprint, "split": self.data.split},
        }  # fmt: skip


def data_options(about: dict[str, Any], cfg: EvalConfig) -> tuple[DataConfig, EvalConfig]:
    """The data of the run that made a backbone, overridden by what the command line names.

    Raises:
        UserError: When neither says where labelled images are.
    """
    made_on = about.get("data")
    if made_on is None:
        if cfg.data.path is None:
            raise UserError("the backbone does not say what it was trained on; name images with --eval.data.path")
        return DataConfig(), cfg
    pool = from_dict(KNNRecipe, {"eval": {"data": about.get("eval_data", {})}}).eval.data
    own = DataConfig(made_on["path"], made_on.get("image_column"), made_on.get("label_column"), made_on.get("canvas"))
    if cfg.data.path is None:
        values = to_dict(pool) | {k: v for k, v in to_dict(cfg.data).items() if v is not None}
        cfg = from_dict(KNNRecipe, {"eval": to_dict(cfg) | {"data": values}}).eval
    return own, cfg


def recorded_data(data: DataConfig, judged_on: EvalConfig) -> dict[str, Any]:
    """What an exported backbone remembers of its data; paths become absolute so that it may be used from anywhere."""

    def absolute(values: dict[str, Any]) -> dict[str, Any]:
        path = values["path"]
        if path in (None, "digits"):
            return values
        return values | {"path": str(Path(path).expanduser().resolve())}

    return {"data": absolute(to_dict(data)), "eval_data": absolute(to_dict(judged_on.data))}


def labelled_for(data: DataConfig, cfg: EvalConfig, img_size: int) -> Labelled:
    """The labelled images on their canvas, cut down to ``--eval.labels`` training labels where that is given."""
    found = open_labelled(data, cfg.data)
    train, test = (part.on_canvas(data.canvas, img_size) for part in (found.train, found.test))
    if cfg.labels is not None:
        assert train.labels is not None
        train = train.subset(draw_labels(train.labels, cfg.labels, cfg.draw))
    return Labelled(train, test, found.split)


def open_session(backbone: str, cfg: EvalConfig, run: RunConfig, *, main: bool) -> Session:
    """Loads a backbone and opens the images it is judged on.

    Args:
        backbone: ``--backbone``.
        cfg: What to judge on.
        run: Where results go; default: the run that the backbone belongs to.
        main: Whether this is the main process.

    Raises:
        UserError: Wrong paths, missing labels, other channels than the backbone was built for.
    """
    exported = load_backbone(backbone)
    data, cfg = data_options(exported.about, cfg)
    labelled = labelled_for(data, cfg, exported.size)
    check_format(labelled.test, exported)
    path = Path(run.dir).expanduser() if run.dir else exported.folder.parent
    return Session(exported, labelled, RunDir(path, main))


def check_format(images: ImageSet, exported: Exported) -> None:
    """Refuses images that the backbone was not built for.

    Raises:
        UserError: For another number of channels or another bit depth.
    """
    if images.form.channels != exported.backbone.channels:
        raise UserError(
            f"{images.name} has images of {images.form.channels} channel(s), but the backbone was built for "
            f"{exported.backbone.channels}"
        )
    if images.form.bits != exported.scale.bits:
        raise UserError(
            f"{images.name} has {images.form.bits}-bit images, but the backbone was trained on "
            f"{exported.scale.bits}-bit ones"
        )


def contestants(
    session: Session, *, baselines: bool, seed: int, device: torch.device
) -> Iterator[tuple[str, Extractor]]:
    """The backbone, and beside it the same network with random weights and raw pixels."""
    exported = session.exported
    shape = {"size": exported.size, "pool": exported.pool, "device": device}
    yield (
        str(exported.about.get("objective", "backbone")),
        backbone_extractor(exported.backbone, exported.scale, **shape),
    )
    if baselines:
        yield "random weights", backbone_extractor(exported.with_random_weights(seed), exported.scale, **shape)
        yield "raw pixels", pixel_extractor(exported.scale, size=exported.size)


def announce(session: Session) -> None:
    """Prints what is judged on what."""
    train, test = session.data.train, session.data.test
    present = len(np.unique(train.labels)) if train.labels is not None else 0
    print(
        f"backbone {session.exported.folder} ({session.exported.weights_hash}), pooling {session.exported.pool}\n"
        f"labels   {len(train):,} training images of {present} classes, {len(test):,} test images from {test.name} "
        f"(split {session.data.split})",
        flush=True,
    )


def print_table(title: str, rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """Prints rows as a table.

    Args:
        title: Above the table.
        rows: Dictionaries; numbers get one decimal.
        columns: Key to heading.
    """
    table = Table(title=title, title_justify="left")
    for i, heading in enumerate(columns.values()):
        table.add_column(heading, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in columns))
    Console(soft_wrap=True).print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
