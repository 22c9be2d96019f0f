"""A weight average of several fine-tunings (Wortsman et al. 2022), chosen by labels that none was trained on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor

from ssl_vit.configs import RunConfig, to_dict
from ssl_vit.configs.metrics import METRICS, shown
from ssl_vit.configs.protocols import PROTOCOLS
from ssl_vit.core.dist import meet
from ssl_vit.core.errors import Diverged, UserError
from ssl_vit.core.notices import write_line
from ssl_vit.data.images import ImageSet
from ssl_vit.evaluation.answers import answered
from ssl_vit.evaluation.features import Features, answers_to
from ssl_vit.evaluation.judging import Judged, finish
from ssl_vit.evaluation.labelled_run import facts_of_backbone, fine_tuned
from ssl_vit.evaluation.metrics import judge as measure
from ssl_vit.evaluation.session import Session, held_out_part
from ssl_vit.exports.classifier import TrainedClassifier, export_classifier, load_classifier
from ssl_vit.exports.timm_folder import export_backbone
from ssl_vit.methods.supervised import FinetuneRecipe, SoupRecipe, resolve_finetuning
from ssl_vit.models.build import adapt
from ssl_vit.models.heads import Classifier

State = dict[str, Tensor]


class Choice(NamedTuple):
    """Which networks are averaged, and how that came about."""

    members: tuple[int, ...]
    """At least one; one alone is no average."""
    value: float
    """Of their average, on the held-out labels."""
    single: int
    """The best of them alone."""
    refused: float | None = None
    """Of the average that was worse than the best alone, where it was."""


def choose(
    kind: Literal["uniform", "greedy"], values: Sequence[float], sign: float, mixed: Callable[[tuple[int, ...]], float]
) -> Choice:
    """Which of several networks to average: never a choice that held-out labels find worse than the best one alone.

    uniform: all. greedy (algorithm 1): the best, then in falling order each that does not make the average worse.

    Args:
        kind: Of the two.
        values: Of every network alone, on the held-out labels.
        sign: 1 where larger is better, -1 where smaller is.
        mixed: The value of an average of these, on the same labels.
    """
    order = sorted(range(len(values)), key=lambda i: -sign * values[i])
    best = order[0]
    if kind == "uniform":
        members = tuple(range(len(values)))
        value = mixed(members) if len(members) > 1 else values[best]
        if sign * value < sign * values[best]:
            return Choice((best,), values[best], best, refused=value)
        return Choice(members, value, best)
    members, value, refused = (best,), values[best], None
    for i in order[1:]:
        tried = tuple(sorted((*members, i)))
        found = mixed(tried)
        if sign * found >= sign * value:
            members, value = tried, found
        elif refused is None or sign * found > sign * refused:
            refused = found
    return Choice(members, value, best, None if len(members) > 1 else refused)


def average(states: Sequence[State]) -> State:
    """The mean of every weight, in double precision; whole numbers are those of the first.

    Running statistics of batch normalisation are averaged as weights are.

    Args:
        states: Of networks of one kind.
    """
    first = states[0]
    return {
        name: torch.stack([state[name].double() for state in states]).mean(0).to(value.dtype)
        if value.is_floating_point() else value
        for name, value in first.items()
    }  # fmt: skip


def judge(cfg: SoupRecipe, session: Session, accelerator: Accelerator) -> Judged:
    """Fine-tunes as often as there are rates, on four fifths of the labels, averages, and judges what was chosen.

    The last fifth chooses; the test images are looked at once, by what was chosen and by the best single network.

    Args:
        cfg: ``run.dir`` holds the fine-tunings, and what was chosen as a classifier.
        session: A backbone and labelled images.
        accelerator: Of the process.

    Raises:
        UserError: For too few labels, no folder, a head that is not exported, and held-out labels that leave the metric
            undefined.
    """
    if cfg.run.dir is None:
        raise UserError("a soup needs --run.dir, the folder of its fine-tunings")
    if cfg.supervised.head_hidden:
        raise UserError(f"--supervised.head_hidden {cfg.supervised.head_hidden}: only a linear classifier is averaged")
    root, metric = Path(cfg.run.dir), session.metric
    data = held_out_part(session.data, cfg.eval.draw, "soup")
    inner = session._replace(data=data, cfg=replace(session.cfg, held_out=True), seen=None, omission=None)
    members: list[TrainedClassifier] = []
    lost: list[Diverged] = []
    for number, member in enumerate(_members(cfg, inner)):
        own = replace(member, run=RunConfig(str(root / f"member-{number}")))
        told = f"fine-tuning {number + 1} of {len(cfg.soup.rates)}: seed {own.seed}, {_rate(own)}"
        if accelerator.is_main_process:
            print(f"\n{told}", flush=True)
        begins = session.exported._replace(backbone=copy.deepcopy(session.exported.backbone))  # trained in place
        try:
            trained = fine_tuned(own, inner._replace(exported=begins), accelerator)
        except Diverged as error:  # on every process: the others do without it
            lost.append(error)
            if accelerator.is_main_process:
                write_line(f"left out: {told}: {error}")
            continue
        if trained.run is None:
            raise ValueError("fine-tuning has a run of its own")
        result = inner.result(PROTOCOLS["finetune"].method, trained.rows, trained.options, own.seed, size=trained.size)
        finish(trained, result, data.test, metric, trained.run, PROTOCOLS["finetune"].result)
        meet()  # the main process has exported it
        members.append(load_classifier(str(trained.run.path)))
    if not members:
        raise lost[0]
    first = members[0]
    size, states = first.exported.size, [{k: v.cpu() for k, v in m.net.state_dict().items()} for m in members]

    def scores(chosen: Sequence[int], images: ImageSet) -> tuple[Features, dict[str, Any]]:
        net = copy.deepcopy(first.net)
        net.load_state_dict(average([states[i] for i in chosen]) if len(chosen) > 1 else states[chosen[0]])
        return _scores(net, first, images, size=size, device=accelerator.device)

    def value(chosen: Sequence[int]) -> float:
        found = scores(chosen, data.test)[1][metric]
        if found is None:
            raise UserError(f"{METRICS[metric].words} is not defined on the {len(data.test):,} held-out labels, so "
                            "nothing can be chosen by it; name another metric (eval.metric)")  # fmt: skip
        return float(found)

    alone = [value((i,)) for i in range(len(members))]
    choice = choose(cfg.soup.kind, alone, METRICS[metric].sign, value)
    said = _words(choice, cfg.soup.kind, alone, metric) + (f"; {len(lost)} more diverged" if lost else "")
    asked, metrics = scores(choice.members, session.data.test)
    objective = str(session.exported.about.get("objective", "backbone"))
    count, chosen = len(session.data.train), said.partition(":")[0]
    rows: list[dict[str, Any]] = [{
        "method": f"{objective}, {chosen}", "labels": count, "validated": choice.value,
        "members": list(choice.members), "alone": alone, **metrics,
    }]  # fmt: skip
    if len(choice.members) > 1:
        single = scores((choice.single,), session.data.test)[1]
        rows.append({
            "method": f"{objective}, best single fine-tuning", "labels": count, "validated": alone[choice.single],
            **single,
        })  # fmt: skip
    if accelerator.is_main_process:
        _export(first, average([states[i] for i in choice.members]), root, said)
        print(said[0].upper() + said[1:])
    options = {k: to_dict(getattr(cfg, k)) for k in ("model", "supervised", "augment", "optim", "fit", "soup")}
    selection = f"{metric} on a fifth of the labels, which no network was trained on: {said}"
    return Judged(
        rows, options, f"{chosen}, {len(session.data.test):,} test images",
        answered(session.data.test, metric, asked.x, asked), {"method": "method", "labels": "labels"}, selection,
        size=size, left=f"Classifier: {root / 'classifier'}",
    )  # fmt: skip


def _rate(member: FinetuneRecipe) -> str:
    """The learning rate that a fine-tuning is asked for, which is that of 256 images where its batch decides."""
    if member.optim.lr is not None:
        return f"learning rate {member.optim.lr:.3g}"
    return f"base rate {member.optim.base_lr:.3g} (per 256 images)"


def _members(cfg: SoupRecipe, inner: Session) -> list[FinetuneRecipe]:
    """What each fine-tuning is asked for: its own learning rate and seed."""
    given: dict[str, Any] = {f.name: getattr(cfg, f.name) for f in fields(FinetuneRecipe)}
    given["eval"] = replace(cfg.eval, held_out=True)
    plain = FinetuneRecipe(**given)
    exported, train = inner.exported, inner.data.train
    backbone = adapt(exported.backbone, img_size=cfg.model.img_size, patch_size=cfg.model.patch_size)
    facts = facts_of_backbone(backbone, exported, cfg.model.img_size, len(train), train.kind)
    optim = resolve_finetuning(plain, facts, exported.preset(facts.model.img_size)).optim
    found: list[FinetuneRecipe] = []
    for number, rate in enumerate(cfg.soup.rates):
        lr = None if cfg.optim.lr is None else cfg.optim.lr * rate
        base = cfg.optim.base_lr if optim.base_lr is None or lr is not None else optim.base_lr * rate
        found.append(replace(plain, seed=cfg.seed + number, optim=replace(cfg.optim, lr=lr, base_lr=base)))
    return found


def _scores(
    net: Classifier, about: TrainedClassifier, images: ImageSet, *, size: int, device: torch.device
) -> tuple[Features, dict[str, Any]]:
    """A network's outputs for every readable image, in their own units, and every metric of them."""
    net = net.to(device).eval()
    dtype = next(net.parameters()).dtype
    found = answers_to(net, images, about.exported.scale, size=size, dtype=dtype, device=device)
    scale, kind = about.labelling.scale, about.labelling.kind
    found = found if scale is None else replace(found, x=scale.restore(found.x))
    metrics = measure(kind, found.x, found.labels, about.labelling.names)
    return found, metrics | {"unreadable_test_images": list(found.left_out)}


def _words(choice: Choice, kind: str, alone: Sequence[float], metric: str) -> str:
    """What was chosen, a colon, and by which numbers."""
    best = shown(metric, alone[choice.single])
    by = f"{METRICS[metric].words} on the held-out labels"
    if len(choice.members) > 1:
        return (
            f"{kind} soup of {len(choice.members)} of {len(alone)} fine-tunings: {by} {shown(metric, choice.value)}, "
            f"best single one {best}"
        )
    what = f"best of {len(alone)} fine-tunings, no soup: {by} {best}"
    return what if choice.refused is None else f"{what}, and the average is worse with {shown(metric, choice.refused)}"


def _export(first: TrainedClassifier, state: State, root: Path, said: str) -> None:
    """Leaves what was chosen as a classifier, and its backbone."""
    net, exported = copy.deepcopy(first.net).cpu(), first.exported
    net.load_state_dict(state)
    about = {
        k: v for k, v in exported.about.items() if k not in ("classifier", "pool", "bits", "import", "preprocessing")
    }
    about |= {"soup": said}
    pool = "cls" if net.pool == "cls" else "mean"
    export_backbone(net.backbone, root / "backbone", exported.scale, pool, about)
    export_classifier(net, root / "classifier", exported.scale, first.labelling, about)
