"""What every evaluation script begins and ends with: backbone and labelled images in, table and result file out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from ssl_vit.checkpoint import Exported, load_backbone
from ssl_vit.configs import DataConfig, EvalConfig, LabelledDataConfig, LabelsConfig, RunConfig, to_dict
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources import Labelled, open_labelled, open_pool
from ssl_vit.errors import UserError
from ssl_vit.evaluation.features import Extractor, backbone_extractor, pixel_extractor
from ssl_vit.evaluation.few_label import labelled_draw
from ssl_vit.rundir import RunDir, digest


class Session(NamedTuple):
    """A backbone and the images it is judged on."""

    exported: Exported
    data: Labelled
    run: RunDir
    labels: str
    """Which labels were drawn, for file names; empty for all of them."""
    seen: int | None
    """Test images that pre-training has seen; None where that cannot be known."""

    def result(self, method: str, rows: list[dict[str, Any]], protocol: dict[str, Any], seed: int) -> dict[str, Any]:
        """The content of a result file: numbers with the protocol that gives them their meaning."""
        train, test = self.data.train, self.data.test
        return {
            "method": method,
            "rows": rows,
            "protocol": protocol,
            "protocol_hash": digest(protocol),
            "labels_used": len(train),
            "draw": self.labels or "all labels",
            "test_images_seen_in_pre_training": self.seen,
            "seed": seed,
            "backbone": {
                "folder": str(self.exported.folder), "weights": self.exported.weights_hash, **self.exported.about,
            },
            "data": {"name": test.name, "train": train.fingerprint, "test": test.fingerprint, "split": self.data.split},
        }  # fmt: skip


def _own_data(about: dict[str, Any], named: LabelledDataConfig) -> tuple[DataConfig, LabelledDataConfig]:
    """The data of the run that made a backbone, overridden by what the command line names.

    Raises:
        UserError: When neither says where labelled images are.
    """
    made_on = about.get("data")
    if made_on is None:
        if named.path is None:
            raise UserError("the backbone does not say what it was trained on; name images with --eval.data.path")
        return DataConfig(), named
    own = DataConfig(**made_on)
    if named.path is None:
        recorded = LabelledDataConfig(**about["eval_data"])
        named = replace(recorded, **{k: v for k, v in to_dict(named).items() if v is not None})
    return own, named


def recorded_data(data: DataConfig, judged_on: LabelledDataConfig) -> dict[str, Any]:
    """What an exported backbone remembers of its data; paths become absolute so that it may be used from anywhere."""

    def absolute(values: dict[str, Any]) -> dict[str, Any]:
        path = values["path"]
        if path in (None, "digits"):
            return values
        return values | {"path": str(Path(path).expanduser().resolve())}

    return {"data": absolute(to_dict(data)), "eval_data": absolute(to_dict(judged_on))}


def seen_in_pre_training(about: dict[str, Any], test: ImageSet) -> int | None:
    """How many test images were in the pool that a backbone was pre-trained on.

    Args:
        about: What the backbone recorded.
        test: The test images.

    Returns:
        Their number; None where the pool was another source, or has changed since.
    """
    if "pool_fingerprint" not in about:
        return None
    try:
        pool, _ = open_pool(DataConfig(**about["data"]), LabelledDataConfig(**about["eval_data"]))
    except UserError:
        return None
    if pool.fingerprint != about["pool_fingerprint"]:
        return None
    own_split = pool.source != test.source and pool.name == test.name
    return 0 if own_split else int(np.isin(test.ids, pool.ids).sum()) if pool.source == test.source else None


def labelled_for(data: DataConfig, cfg: LabelsConfig | EvalConfig) -> Labelled:
    """The labelled images, cut down to ``--eval.labels`` training labels where that is given."""
    found = open_labelled(data, cfg.data)
    return found._replace(train=labelled_draw(found.train, cfg.labels, cfg.draw))


def on_canvas(data: Labelled, side: int | None, img_size: int) -> Labelled:
    """Both splits on the canvas that their common sizes ask for."""
    return data._replace(train=data.train.on_canvas(side, img_size), test=data.test.on_canvas(side, img_size))


def open_session(
    backbone: str, cfg: LabelsConfig | EvalConfig, run: RunConfig, *, main: bool, img_size: int | None = None
) -> Session:
    """Loads a backbone and opens the images it is judged on.

    Args:
        backbone: ``--backbone``.
        cfg: What to judge on.
        run: Where results go; default: the run that the backbone belongs to.
        main: Whether this is the main process.
        img_size: Side of the input in pixels where it is not the backbone's own.

    Raises:
        UserError: Wrong paths, missing labels, other channels than the backbone was built for.
    """
    exported = load_backbone(backbone)
    data, named = _own_data(exported.about, cfg.data)
    found = on_canvas(labelled_for(data, replace(cfg, data=named)), data.canvas, img_size or exported.size)
    check_format(found.test, exported)
    seen = seen_in_pre_training(exported.about, found.test)
    if seen and main:
        sys.stderr.write(
            f"warning: pre-training has seen {seen:,} of the {len(found.test):,} test images (without labels); "
            "give the pre-training the same --eval.data options to keep them out\n"
        )
    path = Path(run.dir).expanduser() if run.dir else exported.folder.parent
    drawn = "" if cfg.labels is None else f"-{cfg.labels}-labels-draw-{cfg.draw}"
    return Session(exported, found, RunDir(path, main), drawn, seen)


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
        f"({session.data.split})",
        flush=True,
    )


def print_table(title: str, rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """Prints rows as a table.

    Args:
        title: Above the table.
        rows: Dictionaries; numbers get one decimal.
        columns: Key to heading.
    """
    columns = {key: heading for key, heading in columns.items() if any(row.get(key) is not None for row in rows)}
    table = Table(title=title, title_justify="left")
    for i, heading in enumerate(columns.values()):
        table.add_column(heading, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in columns))
    Console(soft_wrap=True).print(table)


def conclusion(rows: list[dict[str, Any]]) -> str:
    """One sentence: the backbone against the best of the rows beside it, without claiming more than one number can.

    Args:
        rows: The backbone's row, then the baselines'.
    """
    if len(rows) < 2:
        return ""
    first, best = rows[0], max(rows[1:], key=lambda row: float(row["top1"]))
    gap = float(first["top1"]) - float(best["top1"])
    doubt = f"one draw of labels, {first['images']:,} test images, no interval"
    if gap > 0:
        return f"{first['method']} scores {gap:.1f} points above {best['method']} ({doubt})."
    return f"No gain: {best['method']} score {-gap:.1f} points above {first['method']} ({doubt})."


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
