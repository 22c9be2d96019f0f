"""The units of work of a verdict: each runs in one process (or all together), and leaves files that are whole."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from ssl_vit import train
from ssl_vit.configs import EvalConfig, KNNRecipe, LinearConfig, LinearRecipe, RunConfig, SupervisedRecipe
from ssl_vit.dist import gather_lists, rank_and_world
from ssl_vit.errors import Collapsed, Diverged
from ssl_vit.evaluation.answers import Answers, answers_of, save_answers
from ssl_vit.evaluation.features import Features
from ssl_vit.evaluation.few_label import labelled_draw
from ssl_vit.evaluation.knn import knn_means, knn_scores, log_shares, share_logits
from ssl_vit.evaluation.linear_cached import CachedFit, linear_cached
from ssl_vit.evaluation.linear_protocols import candidate_pools
from ssl_vit.evaluation.metrics import judge, signed
from ssl_vit.evaluation.protocol import result_of
from ssl_vit.evaluation.session import Contestant, Session, contestants, extract_both, open_session
from ssl_vit.rundir import commit, digest, hardware, remove, versions, write_atomically
from ssl_vit.verdict.folders import discard, prepare
from ssl_vit.verdict.scripts import main_of
from ssl_vit.verdict.study import NAMES, SCRIPTS, Study
from ssl_vit.verdict.tuning import Candidate

_LINES, _SECONDS, _MOST_STEPS = 6, 3.0, 96
"""Parts that measured steps are timed in, how long they should take, and how many they are at most."""

K = 20
"""Neighbours that vote, fixed beforehand."""


def key_of(start: str, use: str, labels: int, draw: int, *, matched: bool = False) -> str:
    """Name of a number's files."""
    return f"{start}-{use}{'-matched' if matched else ''}-{labels}-labels-draw-{draw}"


def files_of(key: str) -> list[str]:
    """Where a number and its answers are, in the verdict's folder."""
    return [f"results/{key}.json", f"results/{key}.npz"]


def pretrain(study: Study, start: str, number: int) -> dict[str, Any]:
    """One pre-training run, continued where it was.

    Returns:
        What ``cost_of`` the run says, or ``failed``: why, where self-distillation collapsed or training diverged.
    """
    config = study.pretraining(start, number)
    try:
        _run(SCRIPTS[start], config)
    except (Collapsed, Diverged) as error:
        return {"failed": str(error)}
    return cost_of(Path(config.run.dir or "")) if is_main() else {}


def cost_of(run: Path) -> dict[str, Any]:
    """What a run took: images seen, FLOPs, seconds of training, peak memory in bytes, devices."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timing = [json.loads(line) for line in (run / "timing.jsonl").read_text().splitlines()]
    about = json.loads((run / "environment.json").read_text())
    batch = yaml.safe_load((run / "config.yaml").read_text())["fit"]["batch_size"]
    steps = np.diff([0, *[line["step"] for line in timing]])
    seconds = float((steps * batch / np.array([line["images_per_second"] for line in timing])).sum())
    images = lines[-1]["step"] * batch
    return {
        "images": images, "seconds": seconds, "flops": about.get("flops_per_image", 0) * images or None,
        "peak_memory": max(line["peak_memory"] for line in timing), "device": about["hardware"].get("device"),
        "devices": about["hardware"].get("processes", 1), "last_loss": lines[-1]["loss"],
    }  # fmt: skip


def trial(study: Study, start: str, labels: int, number: int, chosen: Candidate) -> dict[str, Any]:
    """One trial of options on the first draw, judged by a fifth of its labels.

    Returns:
        ``score``: larger is better; None where training diverged.
    """
    folder = study.folder / "work" / f"trial-{start}-{labels}-{number}"
    script, config = study.training(start, labels, 0, chosen, folder, held_out=True)
    try:
        _run(script, config)
    except Diverged as error:
        if is_main():
            discard(folder)
        return {"score": None, "why": str(error)}
    if not is_main():
        return {}
    result, cost = _result(folder), cost_of(folder)
    discard(folder)
    return {"score": signed(study.metric) * result["rows"][0][study.metric], "cost": cost,
            "command": study.command(script, config)}  # fmt: skip


def measure(study: Study, start: str) -> dict[str, Any]:
    """Some steps of a run, for planning: its pace, and what a run takes beside its steps.

    Tried twice: the first time also imports and compiles what all runs use.
    """
    if start in SCRIPTS:
        config: Any = study.pretraining(start, 0)
        script = SCRIPTS[start]
        if start == "dino":
            config = replace(config, dino=replace(config.dino, on_collapse="warn"))
    else:
        script, config = study.training(start, study.labels[-1], 0, study.usual(start, study.labels[-1]), study.folder)
    first = _tried(study, f"measure-{start}", script, config, _LINES)
    wanted = _SECONDS * first["images_per_second"] / first["batch"] if first else 0
    steps = int(gather_lists([str(int(np.clip(wanted, _LINES, _MOST_STEPS)))])[0])  # as the main process says
    return _tried(study, f"measure-{start}", script, config, _LINES * (steps // _LINES))


def _tried(study: Study, name: str, script: str, config: Any, steps: int) -> dict[str, Any]:
    folder = study.folder / "work" / name
    if is_main():
        shutil.rmtree(folder, ignore_errors=True)
    fit = replace(config.fit, epochs=1e-6, min_steps=steps, log_every=steps // _LINES)
    began = time.monotonic()
    main_of(script)(replace(config, fit=fit, run=RunConfig(str(folder))))
    took = time.monotonic() - began
    if not is_main():
        return {}
    timing = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
    cost = cost_of(folder)
    shutil.rmtree(folder)
    pace = float(np.median([line["images_per_second"] for line in timing[1:]]))  # the first steps warm up
    return {"images_per_second": pace, "batch": cost["images"] / steps, "overhead": max(0.0, took - cost["seconds"]),
            "flops_per_image": (cost["flops"] or 0) / cost["images"]}  # fmt: skip


def training(
    study: Study, start: str, labels: int, draw: int, chosen: Candidate, steps: int | None = None
) -> dict[str, Any]:
    """All weights trained on one draw of labels, and judged on the test images.

    Args:
        study: What it belongs to.
        start: scratch, cnn, mae, dino or public.
        labels: How many.
        draw: Which draw.
        chosen: Tuned options.
        steps: Instead of the tuned length: the baseline at the FLOPs of pre-training and fine-tuning.

    Returns:
        ``value`` and ``files``, or ``failed`` where training diverged with the tuned options and with the usual ones;
        a ``note`` of either.
    """
    matched = steps is not None
    key = key_of(start, "train", labels, draw, matched=matched)
    where = f"{NAMES[start]} with {labels:,} labels, draw {draw}{', at the FLOPs of pre-training' if matched else ''}"
    found: dict[str, Any] = {"failed": "diverged", "note": f"{where}: training diverged, so there is no number"}
    folders = {chosen: study.folder / "work" / key}
    folders.setdefault(study.usual(start, labels), study.folder / "work" / f"{key}-usual")
    for options, folder in folders.items():
        script, config = study.training(start, labels, draw, options, folder, steps=steps)
        try:
            _run(script, config)
        except Diverged:
            continue
        found = _keep_training(study, key, script, config, start, labels, draw, matched) if is_main() else {}
        if options != chosen:
            found["note"] = f"{where}: training with the tuned options diverged, so the usual ones were taken"
        break
    for folder in folders.values() if is_main() else ():
        discard(folder)
    return found


def _keep_training(
    study: Study, key: str, script: str, config: Any, start: str, labels: int, draw: int, matched: bool
) -> dict[str, Any]:
    folder = Path(config.run.dir)
    result, cost = _result(folder), cost_of(folder)
    row = result["rows"][0]
    protocol = result["protocol"]
    # What is tuned, and what the number of labels decides, is no option here but a rule.
    for name in ("optim", "fit", "model", "preset", "supervised.mixup", "supervised.cutmix"):
        remove(protocol, name)
    protocol |= {
        "evaluation": "all weights trained",
        "clip_grad": config.fit.clip_grad,
        "tuning": study.rule(),
        "mixing": f"as preset {study.preset}",
    }
    told = {
        "start": start, "use": "train", "draw": draw, "share": 100 * labels / study.labels[-1],
        "pretraining": study.number(start, draw), "matched": matched,
        "command": study.command(script, config), "cost": cost,
    }  # fmt: skip
    row["method"] = NAMES[start] if isinstance(config, SupervisedRecipe) else f"{NAMES[start]}, fine-tuned"
    result |= {"protocol": protocol, "protocol_hash": digest(protocol), "verdict": told, "draw": draw}
    answers = next((folder / "results").glob("*.npz"), None)
    _keep(study, key, result, answers)
    classifier = study.folder / "runs" / f"{start}-trained"
    if draw == 0 and labels == study.labels[-1] and not matched:  # one is kept, for pictures and predict.py
        shutil.rmtree(classifier, ignore_errors=True)
        classifier.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder, classifier, ignore=shutil.ignore_patterns("checkpoints"))
    return {"value": row[study.metric], "files": files_of(key)}


def _run(script: str, config: Any) -> None:
    """A script with these options, in a folder that holds nothing else."""
    if is_main():
        prepare(Path(config.run.dir))
    main_of(script)(config)


def _result(folder: Path) -> dict[str, Any]:
    return json.loads(next((folder / "results").glob("*.json")).read_text())


def is_main() -> bool:
    """Whether this process writes."""
    return rank_and_world()[0] == 0


def _keep(study: Study, key: str, result: dict[str, Any], answers: Path | Answers | None) -> None:
    """Answers first: a result that is there is whole."""
    path = study.folder / "results" / f"{key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(answers, Path):
        shutil.copyfile(answers, path.with_suffix(".npz"))
    elif answers is not None:
        save_answers(path, answers)
    write_atomically(path, json.dumps(result, indent=1) + "\n")


class Bank:
    """Features of the images of one method, with every pooling in their columns."""

    def __init__(self, study: Study, start: str, number: int) -> None:
        """Extracts them, or finds them from before.

        Args:
            study: What it belongs to.
            start: mae, dino, public, random or pixels.
            number: Of the pre-training seed; for random weights their seed.
        """
        accelerator = train.start("fp32", 0)
        run = study.runs(start)[number if start not in ("random", "pixels") else 0]
        main = accelerator.is_main_process
        session = open_session(str(run), study.extraction(), RunConfig(None), main=main)
        pool, self.pools = candidate_pools(session.exported.backbone)
        self.own_pool = session.exported.pool
        self.session: Session = session._replace(exported=session.exported._replace(pool=pool))
        train.use_cores(accelerator, session.exported.size)
        chosen = self._contestant(start, number, accelerator.device)
        if start == "pixels":
            self.pools, self.own_pool = {"pixels": slice(None)}, "pixels"
        self.train, self.test = extract_both(self.session, chosen, study.extraction(), accelerator.device)
        self.device = accelerator.device
        self.about = self.session.result("", [], {}, 0)  # of all results on these features
        if start in ("random", "pixels"):
            self.about["backbone"] = None

    def _contestant(self, start: str, number: int, device: torch.device) -> Contestant:
        wanted = {"random": "random weights", "pixels": "raw pixels"}.get(start)
        found = list(contestants(self.session, EvalConfig(baselines=wanted is not None), seed=number,
                                 device=device))  # fmt: skip
        # An untrained network is called "random weights" itself, so the baselines behind it are looked through first.
        return found[0] if wanted is None else next(c for c in reversed(found) if c.method == wanted)

    def draw(self, labels: int, draw: int) -> Features:
        """Features of one draw's images."""
        whole = self.session.data.train
        part = labelled_draw(whole, labels, draw)
        return self.train.subset(np.flatnonzero(np.isin(whole.ids, part.ids)))


def sweep(study: Study, start: str) -> dict[str, Any]:
    """Options of the linear probe, chosen once for a method by cross-validation inside the first draw's labels.

    Returns:
        By number of labels: pool, rate, decay, selection.
    """
    bank = Bank(study, start, 0)
    found: dict[str, Any] = {}
    for labels in study.labels if is_main() else ():
        fitted = _linear(study, bank, bank.draw(labels, 0), LinearConfig(), 0)
        found[str(labels)] = {"pool": fitted.pool, "rate": fitted.rate, "decay": fitted.decay,
                              "selection": fitted.selection, "score": fitted.validated}  # fmt: skip
    return found


def _linear(study: Study, bank: Bank, drawn: Features, cfg: LinearConfig, seed: int) -> CachedFit:
    whole = bank.session.data.train
    pools = bank.pools if cfg.pool is None or cfg.pool not in bank.pools else {cfg.pool: bank.pools[cfg.pool]}
    return linear_cached(
        drawn.x, drawn.labels, bank.test.x, pools, kind=study.kind, names=bank.session.data.test.classes, cfg=cfg,
        default_pool=bank.own_pool, seed=seed, metric=study.metric,
        groups=None if whole.groups is None else whole.groups[drawn.index], device=bank.device,
    )  # fmt: skip


def probe(study: Study, start: str, number: int, draws: tuple[int, ...], swept: dict[str, Any]) -> dict[str, Any]:
    """k-NN and linear probes on one set of features, with every number of labels and some draws.

    Args:
        study: What it belongs to.
        start: mae, dino, public, random or pixels.
        number: Of the pre-training seed; for random weights their seed.
        draws: Draws of labels that go with it.
        swept: What ``sweep`` chose.
    """
    bank = Bank(study, start, number)
    for draw in draws if is_main() else ():
        for labels in study.labels:
            began, drawn = time.monotonic(), bank.draw(labels, draw)
            scores = _votes(study, bank, drawn)
            _keep_probe(study, bank, "knn", start, number, labels, draw, scores, {}, time.monotonic() - began)
            began, own = time.monotonic(), swept[str(labels)]
            fixed = LinearConfig(pool=own["pool"], rates=(own["rate"],), decays=(own["decay"],))
            fitted = _linear(study, bank, drawn, fixed, draw)
            _keep_probe(study, bank, "linear", start, number, labels, draw, fitted.scores, own,
                        time.monotonic() - began)  # fmt: skip
    keys = [key_of(start, use, labels, draw) for draw in draws for labels in study.labels for use in ("knn", "linear")]
    return {"draws": len(draws), "files": [name for key in keys for name in files_of(key)]}


def _votes(study: Study, bank: Bank, drawn: Features) -> np.ndarray:
    columns = bank.pools[bank.own_pool]
    x, queries = (torch.from_numpy(np.ascontiguousarray(f.x[:, columns])).to(bank.device) for f in (drawn, bank.test))
    labels = torch.from_numpy(drawn.labels)
    if study.kind == "class":
        classes = len(bank.session.data.test.classes)
        return log_shares(knn_scores(x, labels.to(bank.device), queries, ks=(K,), classes=classes)[K]).numpy()
    means = knn_means(x, labels, queries, ks=(K,))[K]
    return (share_logits(means) if study.kind == "multilabel" else means).numpy()


def _keep_probe(
    study: Study, bank: Bank, use: str, start: str, number: int, labels: int, draw: int, scores: np.ndarray,
    own: dict[str, Any], seconds: float,
) -> None:  # fmt: skip
    session, test = bank.session, bank.session.data.test
    row = {"method": NAMES[start], **{k: v for k, v in own.items() if k != "score"},
           **judge(study.kind, scores, bank.test.labels, test.classes, only=study.metric),
           "unreadable_test_images": list(bank.test.left_out)}  # fmt: skip
    if use == "knn":
        protocol: dict[str, Any] = {"knn": {"k": K, "temperature": 0.07, "similarity": "cosine"}}
    else:
        protocol = {"linear": {"rates": LinearConfig().rates, "decays": LinearConfig().decays},
                    "tuning": "once, by cross-validation inside the first draw's labels"}  # fmt: skip
    data = session.data._replace(train=labelled_draw(session.data.train, labels, draw))
    cfg = replace(study.extraction(), labels=labels, draw=draw)
    name, size = "knn" if use == "knn" else "linear-cached", session.exported.size
    result = bank.about | result_of(
        name, [row], protocol, data=data, size=size, metric=study.metric, cfg=cfg, seed=draw
    )
    seeded = start in ("mae", "dino", "public")
    told = {
        "start": start, "use": use, "draw": draw, "share": 100 * labels / study.labels[-1],
        "pretraining": number if seeded else None, "matched": False,
        "command": _probe_command(study, use, start, number, labels, draw, own), "cost":
        {"seconds": seconds, "flops": None, "images": None, "peak_memory": None},
    }  # fmt: skip
    result |= {"verdict": told, "made_with": _made_with(), "draw": draw}
    groups = None if test.groups is None else test.groups[bank.test.index]
    answers = answers_of(
        study.kind, study.metric, scores, bank.test.labels, test.classes, groups, positions=bank.test.index
    )
    _keep(study, key_of(start, use, labels, draw), result, answers)


def _probe_command(study: Study, use: str, start: str, number: int, labels: int, draw: int, own: dict[str, Any]) -> str:
    run = str(study.runs(start)[number if start not in ("random", "pixels") else 0])
    cfg = replace(study.extraction(), labels=labels, draw=draw)
    words = "" if start not in ("random", "pixels") else f"   # the row {NAMES[start]}"
    if use == "knn":
        return study.command("eval/knn.py", KNNRecipe(run, number, eval=cfg)) + words
    pool = None if start == "pixels" else own["pool"]
    linear = LinearConfig(pool=pool, rates=(own["rate"],), decays=(own["decay"],))
    return study.command("eval/linear_probe.py", LinearRecipe(run, draw, eval=cfg, linear=linear)) + words


@lru_cache(maxsize=1)
def _made_with() -> dict[str, Any]:
    return {"versions": versions(), "commit": commit(), "hardware": hardware()}
