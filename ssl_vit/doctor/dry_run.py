"""What the options of a run come to, without images: ``--dry_run``."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from ssl_vit.configs import LinearRecipe, PretrainingRecipe, flat, networks, papers, presets, to_dict
from ssl_vit.configs.facts import NO_EFFECT, options
from ssl_vit.configs.fit import ResolvedOptim
from ssl_vit.configs.model import ResolvedModel
from ssl_vit.configs.papers import Paper, Row
from ssl_vit.configs.protocols import PROTOCOLS
from ssl_vit.core.errors import UserError
from ssl_vit.core.text import aligned, note
from ssl_vit.data.decoding.formats import Format
from ssl_vit.evaluation.labelled_run import facts_of_backbone
from ssl_vit.evaluation.protocols.augmented import PROBES, resolve_probe
from ssl_vit.methods import METHODS, Facts, supervised, taught
from ssl_vit.methods.supervised import FinetuneRecipe, SupervisedRecipe
from ssl_vit.methods.taught import TaughtRecipe
from ssl_vit.models.build import adapt, facts_of, model_facts
from ssl_vit.released.starts import read_start
from ssl_vit.training.forecast import network_of, within_an_hour
from ssl_vit.training.optim import peak_learning_rate, warmup_steps, warn_of_rate

_NOT_SHOWN = ("backbone", "data.", "eval.")
"""Where things are."""


class Stated(NamedTuple):
    """Images that are not opened."""

    images: int
    side: int
    """Median short side in pixels."""
    channels: int = 3


def stated(given: str) -> Stated:
    """What ``--data.facts`` says.

    Args:
        given: ``1281167x375`` or, with channels, ``60000x28x1``.

    Raises:
        UserError: For anything else.
    """
    if not re.fullmatch(r"\d+x\d+(x\d+)?", given) or 0 in map(int, given.split("x")):
        raise UserError(
            f"--data.facts {given} must be the number of images x their median short side in pixels, such as "
            "1281167x375, or with channels 60000x28x1"
        )
    return Stated(*map(int, given.split("x")))


def show(config: Any, paper: Paper | None) -> None:
    """Prints what every option comes to, and how it compares with the paper.

    Args:
        config: A recipe of training.
        paper: What ``--config`` tells of one.

    Raises:
        UserError: Where nothing says how many images there are, or the run would refuse these options.
    """
    facts = config.data.facts or (paper.data if paper else None)
    if facts is None:
        raise UserError(
            "--dry_run opens no images: say how many there are and how large, --data.facts 1281167x375 (images x "
            "median short side in pixels)"
        )
    found = stated(facts)
    print(table(values(resolved(config, found, paper), found.images), paper, facts))


def resolved(config: Any, found: Stated, paper: Paper | None) -> Any:
    """A recipe without open values, as a run on such images would have it.

    Args:
        config: As given.
        found: The images.
        paper: Names the network of commands on a backbone, where none is given.

    Raises:
        UserError: Where the run would refuse these options, or nothing names the network.
    """
    if isinstance(config, PretrainingRecipe):
        method = next(m for m in METHODS.values() if isinstance(config, m.recipe))
        cpu = not _has_accelerator()
        if cpu:
            config, chosen = within_an_hour(method, config, found.images, found.side, Format(found.channels, 8))
            if chosen:
                print(chosen)
        return method.resolve(config, *network_of(method, config, found.images, found.side, cpu=cpu))
    if isinstance(config, SupervisedRecipe):
        shape = facts_of(config.model, found.side, config.preset)
        model = networks.resolve_model(config.model, found.side, shape, config.preset)
        preset = presets.preset_for(config.preset, model.img_size, cpu=not _has_accelerator())
        facts = Facts(found.images, model, shape)
        if isinstance(config, TaughtRecipe):
            return taught.resolve(config, facts, preset)
        return supervised.resolve(config, facts, preset)
    return _on_backbone(config, found, paper)


def _has_accelerator() -> bool:
    import torch

    return torch.accelerator.is_available()


def _on_backbone(config: FinetuneRecipe | LinearRecipe, found: Stated, paper: Paper | None) -> Any:
    """Fine-tuning or a probe, of the backbone that is given or the paper's."""
    size = config.model.img_size if isinstance(config, FinetuneRecipe) else None
    if config.backbone:
        exported = read_start(config.backbone)
        backbone, preset = exported.backbone, exported.preset(size or exported.size)
        if isinstance(config, FinetuneRecipe):
            backbone = adapt(backbone, img_size=size, patch_size=config.model.patch_size)
        facts = facts_of_backbone(backbone, exported, size, found.images, "class")
    elif paper is not None and paper.network is not None:
        shape = model_facts(paper.network)
        model = ResolvedModel(paper.network, size or shape.img_size, shape.patch_size, shape.width, pool="cls")
        preset, facts = presets.for_side(model.img_size, cpu=not _has_accelerator()), Facts(found.images, model, shape)
    else:
        raise UserError("--dry_run needs the network: --backbone RUN, or a paper's --config, which names one")
    if isinstance(config, FinetuneRecipe):
        return supervised.resolve_finetuning(config, facts, preset)
    if config.linear.protocol not in PROBES:
        return config
    return resolve_probe(config, found.images, preset, width=facts.width, class_token=facts.network.class_token)


def values(cfg: Any, images: int) -> dict[str, Any]:
    """What decides the numbers of a run, by dotted names, and what follows from it.

    Args:
        cfg: Without open values.
        images: To train on.
    """
    counts = {name for name, option in options(type(cfg)).items() if option.effect != NO_EFFECT}
    if isinstance(cfg, LinearRecipe):
        read = {"seed", *PROTOCOLS[cfg.linear.protocol].reads}
        counts = {name for name in counts if {name, name.partition(".")[0]} & read}
    given = {
        name: value for name, value in flat(to_dict(cfg)).items()
        if value is not None and name in counts and not name.startswith(_NOT_SHOWN)
    }  # fmt: skip
    found = {name: v for name, v in given.items() if f"{name}_epochs" not in given}  # which counts instead
    fit: Any = cfg.fit
    if fit.batch_size and fit.epochs and cfg.optim.name:
        optim: Any = ResolvedOptim(**to_dict(cfg.optim)) if isinstance(cfg, LinearRecipe) else cfg.optim
        batch, per_epoch = fit.batch_size, images / fit.batch_size
        steps = max(1, math.ceil(fit.epochs * per_epoch), fit.min_steps or 0)
        warn_of_rate(optim, batch)
        found |= {
            "peak learning rate": peak_learning_rate(optim, batch), "steps": steps,
            "warm-up in epochs": round(warmup_steps(optim, steps, per_epoch) / per_epoch, 2),
            "images seen": steps * batch,
        }  # fmt: skip
    return found


def table(found: dict[str, Any], paper: Paper | None, facts: str) -> str:
    """The comparison as text of at most 120 columns.

    Args:
        found: ``values`` of a run.
        paper: None: what the options come to, alone.
        facts: The images, as given.
    """
    rows = papers.compared(found, paper)
    told, open_ = [row for row in rows if row.same is not None], [row for row in rows if row.same is None]
    parts = [f"images          {facts} (number x median short side), not opened"]
    if paper is not None:
        parts = [note(name, text) for name, text in (
            ("recipe", paper.title), ("source", paper.source), ("expected", paper.expected), ("cost", paper.cost),
            ("images", f"{facts} (number x median short side), not opened"),
        )]  # fmt: skip
        parts += ["", aligned([("option", "here", "paper", ""), *(_cells(row) for row in told if row.paper)])]
        different = [row for row in told if not row.same]
        parts += ["", *(note("not same", f"{row.name}: {row.why or _UNEXPLAINED}") for row in different)]
        parts += [f"{len(told) - len(different)} as in the paper, {len(different)} not the same", ""]
    heading = "not in the paper" if paper else "option"
    return "\n".join([*parts, aligned([(heading, "here"), *((row.name, row.here) for row in open_)])])


_UNEXPLAINED = "this command's value is not the paper's"


def _cells(row: Row) -> tuple[str, ...]:
    return row.name, row.here, row.paper, "same" if row.same else "not the same"
