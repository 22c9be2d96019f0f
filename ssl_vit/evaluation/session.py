"""What every evaluation begins and ends with: a backbone and labelled images, and what its result file holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ssl_vit.configs import DataConfig, EvalConfig, LabelledDataConfig, LabelsConfig, RunConfig
from ssl_vit.configs.evaluation import DrawConfig
from ssl_vit.core.arithmetic import rounds_to_tf32
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.data.boxes import judged_share
from ssl_vit.data.leading import chosen_metric
from ssl_vit.data.sources.everywhere import same_everywhere
from ssl_vit.data.sources.opening import Labelled, open_labelled
from ssl_vit.data.sources.told import label_lines, print_lines
from ssl_vit.evaluation.features import (
    Extractor,
    Features,
    backbone_extractor,
    images_at_once,
    pays_to_compile,
    pixel_extractor,
)
from ssl_vit.evaluation.few_label import held_out_inside, labelled_draw, too_few
from ssl_vit.evaluation.input_format import as_trained, check_format, fitted
from ssl_vit.evaluation.store import identity_of, kept_features
from ssl_vit.exports.origin import judged_otherwise, made_with, own_data
from ssl_vit.exports.timm_folder import Exported, network_words
from ssl_vit.leaks.guard import Omission, guard_labelled, on_leak, seen_in_pre_training
from ssl_vit.models.backbone import Backbone
from ssl_vit.released.starts import load_start
from ssl_vit.runs.directory import RunDir
from ssl_vit.runs.identity import digest, with_meaning
from ssl_vit.runs.results import held_out_of
from ssl_vit.training.launch import auto_precision


class Session(NamedTuple):
    """A backbone and the images it is judged on."""

    exported: Exported
    data: Labelled
    run: RunDir
    cfg: DrawConfig
    """What to judge on."""
    metric: str
    """What tables lead with: a key in the result of ``metrics.judge``."""
    seen: int | None
    """Test images that pre-training has seen; None where that cannot be known."""
    judged_on: LabelledDataConfig
    """The labelled images, as the run recorded them and the command line changed them."""
    omission: Omission | None = None
    """Training images that were left out, because they show test images."""
    otherwise: bool = False
    """Whether images or labels are others than those that the backbone's run was told of."""

    def suffix(self, seed: int) -> str:
        """What tells this result's file from others: drawn labels, what is judged on, seed; empty in the plain case."""
        drawn = "" if self.cfg.labels is None else f"-{self.cfg.labels}-labels-draw-{self.cfg.draw}"
        drawn += "-held-out" if isinstance(self.cfg, LabelsConfig) and self.cfg.held_out else ""
        other = f"-on-{self.data.test.fingerprint[:8]}" if self.otherwise else ""
        return drawn + other + (f"-seed-{seed}" if seed else "")

    def result(
        self, method: str, rows: list[dict[str, Any]], options: dict[str, Any], seed: int, *, size: int | None = None
    ) -> dict[str, Any]:
        """``result_of`` for what was judged here, and what is known of the backbone."""
        size, exported = size or self.exported.size, self.exported
        found = result_of(
            method, rows, options, data=self.data, size=size, metric=self.metric, cfg=self.cfg, seed=seed,
            omission=self.omission,
        )  # fmt: skip
        return found | {
            "test_images_seen_in_pre_training": self.seen,
            "backbone": {
                "folder": str(exported.folder), "weights": exported.weights_hash, **exported.about,
                "options": made_with(exported.folder),
            },
        }  # fmt: skip


def result_of(
    method: str,
    rows: list[dict[str, Any]],
    options: dict[str, Any],
    *,
    data: Labelled,
    size: int,
    metric: str,
    cfg: DrawConfig,
    seed: int,
    omission: Omission | None = None,
) -> dict[str, Any]:
    """The content of every result file: numbers, and the protocol that gives them their meaning.

    The protocol holds nothing that a table varies (number of labels, draw, seed, backbone): those stand beside it.
    Results of one ``protocol_hash`` may stand in one table, others may not (``ssl_vit.runs.results``). There is a row
    per method, the backbone's first. Options are groups as asked for: what a default becomes may depend on the number
    of labels, the rule does not; those without meaning for a number are left out here. ``size`` is in pixels.
    """
    train, test = data.train, data.test
    given = with_meaning({group: values for group, values in options.items() if group not in ("eval", "run")})
    share = "7/8 of the short side (all of it where it is no larger)"
    share = "all of the short side" if judged_share(size) == 1.0 else share
    protocol = {
        **({"arithmetic": "tf32"} if rounds_to_tf32() else {}),
        # A number that copies of test images have lifted is another number.
        **({"training_images_that_show_test_images": len(omission.images)} if omission and omission.kept else {}),
        **given,  # what is judged, and how, stands below
        "evaluation": method,
        "kind": test.kind,
        "metric": metric,
        "view": {**test.policy(), "crop": f"central square, {share}", "input": size},  # facts of ``views.eval_images``
        "train": data.whole,
        "test": {"images": len(test), "fingerprint": test.fingerprint, "split": data.split},
    }
    return {
        "method": method,
        "rows": rows,
        "protocol": protocol,
        "protocol_hash": digest(protocol),
        "labels_used": len(train),
        "draw": None if cfg.labels is None else cfg.draw,
        "seed": seed,
        "data": {"name": test.name, "train": train.fingerprint, "test": test.fingerprint, "split": data.split},
    } | ({"left_out": {"images": len(omission.images), "of": omission.total}} if omission and not omission.kept else {})


def labelled_for(data: DataConfig, cfg: DrawConfig, device: torch.device) -> tuple[Labelled, Omission | None]:
    """The labelled images, without training images that show test images, and what was left out.

    They are cut down to ``--eval.labels`` training labels where that is given. Every process must call it.

    Raises:
        UserError: As ``open_labelled``, and where not all processes see the same.
    """
    opened = open_labelled(data, cfg.data)
    same_everywhere(opened.train, opened.test)
    found, omission = guard_labelled(opened, on_leak(data, cfg.data), data.workers, device)
    train = labelled_draw(found.train, cfg.labels, cfg.draw)
    if not (isinstance(cfg, LabelsConfig) and cfg.held_out):
        return found._replace(train=train), omission
    return held_out_part(found._replace(train=train), cfg.draw), omission


def held_out_part(data: Labelled, draw: int, who: str = "--eval.held_out") -> Labelled:
    """Four fifths of the training images to train on, and the last fifth in the place of the test images.

    Args:
        data: Labelled images.
        draw: Of labels.
        who: Asks for it.

    Raises:
        UserError: For too few labels.
    """
    train = data.train
    parts = held_out_inside(train.truth, draw, train.kind, train.groups)
    if parts is None:
        raise UserError(f"{who}: {too_few(train)}")
    kept, held = (train.subset(part) for part in parts)
    return data._replace(train=kept, test=held, split=held_out_of(len(train)))


def warn_unlearnable(data: Labelled) -> None:
    """One line about classes (or labels) that test images have and no training image has."""
    train, test = data.train, data.test
    if test.kind == "regression":
        return
    wide = test.kind == "multilabel"
    tested, given = (
        s.sum(axis=0) if wide else np.bincount(s, minlength=len(test.classes)) for s in (test.truth, train.truth)
    )
    lost = np.flatnonzero((tested > 0) & (given == 0))
    if len(lost):
        names = ", ".join(test.classes[i] for i in lost[:5]) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
        with_them = test.truth[:, lost].any(axis=1).sum() if wide else tested[lost].sum()
        fate = "nothing can be learnt about them" if wide else "they count as wrong"
        sys.stderr.write(
            f"warning: no training image has the label {names}, but {int(with_them):,} of the {len(test):,} "
            f"test images do; {fate}\n"
        )


def on_canvas(data: Labelled, side: int | None, img_size: int, window: int | None) -> Labelled:
    """Both splits on the canvas that their common sizes ask for, or in windows."""
    train, test = (part.on_canvas(side, img_size, window) for part in (data.train, data.test))
    return data._replace(train=train, test=test)


def open_session(
    backbone: str, cfg: DrawConfig, run: RunConfig, *, main: bool, device: torch.device, img_size: int | None = None
) -> Session:
    """Loads a backbone and opens the images it is judged on, for an input of its own or ``img_size`` pixels.

    Every process must call it, with the ``device`` through which they exchange what they saw of the images.

    Raises:
        UserError: Wrong paths, missing labels, other channels than the backbone was built for, or a metric that does
            not fit the labels.
    """
    exported = load_start(backbone)
    data, named = own_data(exported.about, cfg.data)
    size = img_size or exported.size
    labelled, omission = labelled_for(data, replace(cfg, data=named), device)
    coloured = labelled._replace(train=as_trained(labelled.train, exported), test=as_trained(labelled.test, exported))
    canvas, window = data.canvas, data.window
    side = min(part.sizes.short_side for part in (labelled.train, labelled.test))
    if window is not None and cfg.data.path is not None and side < window:
        say_once(
            f"note: the backbone was trained on windows of {window} px; most images of {labelled.test.name} have no "
            f"more than {side} px and are used whole"
        )
        canvas = window = None
    found = on_canvas(coloured, canvas, size, window)
    exported = fitted(found.train, exported)
    check_format(found.test, exported)
    metric = chosen_metric(cfg.metric, found.test.kind, found.test.truth)
    if main:
        warn_unlearnable(found)
    by_labels = isinstance(cfg, LabelsConfig) and cfg.held_out
    seen = None if by_labels else seen_in_pre_training(exported.about, labelled.test, data.workers, device)
    told = ""
    if seen and exported.about.get("transductive"):
        told = f"note: pre-training on {seen:,} of the {len(found.test):,} test images was declared\n"
    elif seen:
        told = (
            f"warning: pre-training has seen {seen:,} of the {len(found.test):,} test images (without labels); "
            "give the pre-training the same --eval.data options to keep them out\n"
        )
    elif seen is None and not by_labels and "pool_fingerprint" in exported.about:
        told = (
            "note: whether pre-training has seen these test images is not known: the pool was another source, or has "
            "changed since\n"
        )
    if main:
        sys.stderr.write(told)
    path = Path(run.dir).expanduser() if run.dir else exported.place
    otherwise = judged_otherwise(exported.about, cfg.data, named)
    return Session(exported, found, RunDir(path, main), cfg, metric, seen, named, omission, otherwise)


class Contestant(NamedTuple):
    """What represents images: the backbone, or a baseline beside it."""

    method: str
    extract: Extractor
    identity: dict[str, Any]
    """All that its vectors depend on beside the images."""


def contestants(session: Session, cfg: EvalConfig, *, seed: int, device: torch.device) -> Iterator[Contestant]:
    """The backbone, and beside it (``--eval.baselines``) the same network with random weights and raw pixels."""
    exported = session.exported
    images = len(session.data.train) + len(session.data.test)
    how = {"size": exported.size, "pool": exported.pool, "bf16": _in_bf16(cfg)}

    def judged(method: str, backbone: Backbone) -> Contestant:
        identity = identity_of(backbone, exported.scale, **how)
        compiled = pays_to_compile(cfg.compile, images, device)
        extract = backbone_extractor(backbone, exported.scale, device=device, compiled=compiled, **how)
        return Contestant(method, extract, identity)

    yield judged(str(exported.about.get("objective", "backbone")), exported.backbone)
    if cfg.baselines:
        yield judged("random weights", exported.with_random_weights(seed))
        pixels = {"network": "raw pixels", "scale": asdict(exported.scale), "size": exported.size}
        yield Contestant("raw pixels", pixel_extractor(exported.scale, size=exported.size), pixels)


def extract_both(
    session: Session, contestant: Contestant, cfg: EvalConfig, device: torch.device
) -> tuple[Features, Features]:
    """A contestant's features of the training and the test images, computed or kept from before."""
    folder, writes = session.run.path / "features" if cfg.keep_features else None, session.run.writes
    at_once, (_, extract, identity) = images_at_once(cfg.batch_size, session.exported.size, device), contestant
    train, test = (
        kept_features(folder, extract, identity, images, writes=writes, batch_size=at_once, device=device)
        for images in (session.data.train, session.data.test)
    )
    return train, test


def arithmetic(cfg: EvalConfig) -> dict[str, str]:
    """What a protocol says of the arithmetic of its features: nothing of single precision (of TF32 ``result_of``)."""
    return {"arithmetic": "bf16"} if _in_bf16(cfg) else {}


def _in_bf16(cfg: EvalConfig) -> bool:
    return (auto_precision() if cfg.precision == "auto" else cfg.precision) == "bf16"


def announce(session: Session, size: int | None = None) -> None:
    """Prints what is judged on what, by which metric, and the network.

    Args:
        session: A backbone and labelled images.
        size: Side of the input in pixels, where it is not the backbone's.
    """
    exported = session.exported
    print_lines([
        *label_lines(session.data, session.metric),
        ("network", f"{network_words(exported)}; {exported.folder} ({exported.weights_hash}), pooling {exported.pool}"),
        ("input", f"{size or exported.size} px"),
    ])  # fmt: skip
