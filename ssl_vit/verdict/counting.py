"""Refuses a budget that no core could keep, by counting: before copies are looked for or anything is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ssl_vit.configs import ResolvedModel, networks
from ssl_vit.core.errors import UserError
from ssl_vit.core.text import duration
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.methods.starts import PUBLIC, VIT, start_called
from ssl_vit.models.build import build_backbone, facts_of
from ssl_vit.verdict.estimate import FULL, Pace, Terms
from ssl_vit.verdict.fitting import Counted, best_rate, counted, trained
from ssl_vit.verdict.opening import decided
from ssl_vit.verdict.options import Comparison, starts_of
from ssl_vit.verdict.plan import least
from ssl_vit.verdict.study import Study


def may_go_on(cfg: Comparison) -> bool:
    """Whether a start may continue a verdict with a plan: in the named folder, or in any where none is named."""
    place = Path(cfg.run.dir).expanduser() if cfg.run.dir else None
    return (place / "plan.json").exists() if place else any(Path("runs").glob("verdict-*/plan.json"))


def refuse_by_counting(cfg: Comparison, pool: ImageSet, data: Labelled, jobs: int, spent: float) -> None:
    """Refuses a budget that the least verdict would not keep on the fastest core.

    Public weights, which are still to be found, are taken to cost nothing; images that show test images count, too.

    Args:
        cfg: As given.
        pool: Images to pre-train on.
        data: The labelled ones.
        jobs: Tasks at a time; 0 for one after the other in this process.
        spent: Seconds until now.

    Raises:
        UserError: Where even that takes longer, with how long.
    """
    opened = decided(cfg, Path(cfg.run.dir or "runs"), pool, data, jobs)
    study, wanted = opened.study, starts_of(cfg.verdict)
    if opened.budget is None or study.given:
        return
    study = replace(study, starts=tuple(s for s in study.starts if start_called(s).network != PUBLIC))
    costs = counted(study, pool, opened.side, cpu=True)
    study = replace(study, epochs={start: cost.epochs for start, cost in costs.items()})
    paces = _at_best(study, costs, pool.form.channels)
    terms = Terms(paces, len(pool), opened.budget, max(1, jobs), {}, spent)
    made = least(study, [s for s in study.starts if wanted[s]], terms)
    if not terms.fits(made):
        took = terms.seconds(made)
        raise UserError(
            f"--verdict.budget: {duration(opened.budget)} is too short to recommend anything; by counting, the least "
            f"that can takes {duration(took)} or more here (three draws at {len(made.labels)} numbers of labels); give "
            f"more than {duration(took / FULL)}, or leave the option out"
        )


def _at_best(study: Study, costs: Mapping[str, Counted], channels: int) -> dict[str, Pace]:
    """Paces that no core reaches: those of counted operations."""
    rate = best_rate()
    found = {s: Pace(rate / c.operations, 0.0, c.flops, float(n)) for s, (_, c, n) in costs.items() if c}
    batch = float(study.batch(study.labels[-1]))
    for start in (s for s in study.starts if not start_called(s).pretrained and "train" in study.uses(s)):
        model = _network(study, start_called(start).network)
        flops = trained(build_backbone(model, channels), model.img_size, model.pool)
        found[start] = Pace(rate / flops, 0.0, flops, batch)
    return found


def _network(study: Study, name: str) -> ResolvedModel:
    if name == VIT:
        return study.model
    model = study.networks[name]
    size = model.img_size or study.model.img_size
    return networks.resolve_model(model, size, facts_of(model, size), study.preset)
