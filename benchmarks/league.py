"""What some minutes of unlabelled pre-training on two CPU cores are worth where labels are few.

    python benchmarks/league.py trial --data FOLDER          # FOLDER holds train.parquet and test.parquet of CIFAR-10
    python benchmarks/league.py trial --data FOLDER --only "k-means of patches"
    python benchmarks/league.py final --data FOLDER          # the chosen entry: three seeds
    python benchmarks/league.py trial --set digits           # other sets: digits, cells16, magtile

Trials are shorter, on one core, of one seed, and judged inside the training labels: a fixed fifth of them is asked,
draws come from the other four. So whatever is chosen by them, no test image took part. The final is judged on the test
images. Pre-training sees the training images without labels, less those that show test images, and what is judged is
its last step: by linear-cached, whose options are chosen by cross-validation inside the few labels (where ten are all,
they are fixed), ten draws, and by k-NN (k = 20) with all labels. Finished cells are kept in --work: it goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from coates import kmeans_extractor
from contest import knn_votes, open_network, pretrain, run_cells, seconds_until
from league_sets import PIXELS, SETS, Entry, Field
from reports import RESULTS, about, machine, paragraph, same_command, write_parts

DRAWS, SEEDS = 10, 3


def judge_features(
    field: Field, extract: Any, columns: dict[str, slice], data: Any, device: Any, *, test: bool
) -> dict[str, float]:
    """What few labels give (mean and deviation over the draws), and k-NN with all of them."""
    import numpy as np
    from ssl_vit.configs import LinearConfig
    from ssl_vit.evaluation.features import extract_features
    from ssl_vit.evaluation.few_label import held_out_inside, labelled_draw
    from ssl_vit.evaluation.linear_cached import linear_cached
    from ssl_vit.evaluation.metrics import judge

    train, asked = data.train, data.test
    if not test:
        split = held_out_inside(train.labels, 0, groups=train.groups)
        assert split is not None
        train, asked = train.subset(split[0]), train.subset(split[1])
    bank, questions = (extract_features(extract, s, batch_size=512, device=device) for s in (train, asked))

    def reached(scores: Any) -> float:
        return float(judge("class", scores, questions.labels, train.classes)[field.metric])

    scores = []
    for draw in range(DRAWS):
        part = labelled_draw(train, field.labels, draw)
        chosen = bank.subset(np.flatnonzero(np.isin(train.ids, part.ids)))
        found = linear_cached(
            chosen.x, chosen.labels, questions.x, columns, kind="class", names=train.classes, cfg=LinearConfig(),
            default_pool=next(iter(columns)), seed=draw, metric=field.metric,
        )  # fmt: skip
        scores.append(reached(found.scores))
    votes = max(reached(knn_votes(bank, questions, len(train.classes), part)) for part in columns.values())
    return {"linear": float(np.mean(scores)), "deviation": float(np.std(scores, ddof=1)), "knn": votes}


def train(of: str, entry: Entry, folder: str, data: str, seed: int, threads: int) -> list[dict[str, Any]]:
    """Pre-trains one entry; its minutes are those of the loop's own log."""
    earlier, before = 0.0, list[str]()
    if entry.begins is not None:
        before = ["--model.weights", f"{folder}-before"]
        earlier = train(of, entry.begins, before[1], data, seed, threads)[0]["minutes"]
    words = (
        *before,
        "--data.path",
        data,
        *SETS[of].data,
        *entry.words,
        "--fit.epochs",
        f"{entry.epochs:g}",
        "--seed",
        f"{seed}",
    )
    pretrain(entry.recipe, folder, words, threads)
    took, done = seconds_until(Path(folder))
    told = about("")
    return [
        {"minutes": earlier + took(done["step"]) / 60, "commit": told["commit"], "machine": machine({"about": told})}
    ]


def judged(of: str, name: str, entry: Entry, folder: str, data: str, seed: int, test: bool) -> list[dict[str, Any]]:
    """What an entry's features are worth."""
    from ssl_vit.evaluation.features import backbone_extractor, candidate_pools, pixel_extractor

    field, told = SETS[of], (f"recipes/{entry.recipe}.py", *SETS[of].data, *entry.words)
    if entry.begins is not None:
        told = *told, "--model.weights BEFORE, of", f"{entry.begins.epochs:g} epochs with", *entry.begins.words
    row: dict[str, Any] = {"entry": name, "seed": seed, "epochs": entry.epochs}
    if not entry.recipe:
        import torch

        images, device, group = opened(data, field), torch.device("cpu"), {"all": slice(None)}
        if name == PIXELS:
            from ssl_vit.data.scale import measure_scale

            made = pixel_extractor(measure_scale(images.train, 500), size=field.size)
            return [row | {"minutes": 0.0} | judge_features(field, made, group, images, device, test=test)]
        made, row["minutes"] = kmeans_extractor(images.train, seed)
        return [row | judge_features(field, made, group, images, device, test=test)]
    accelerator, exported, images = open_network(folder)
    pool, columns = candidate_pools(exported.backbone)
    device = accelerator.device
    extract = backbone_extractor(exported.backbone, exported.scale, size=exported.size, pool=pool, device=device)
    row |= {"words": " ".join(told), "parameters": sum(p.numel() for p in exported.backbone.parameters())}
    return [row | judge_features(field, extract, columns, images, device, test=test)]


def opened(path: str, field: Field) -> Any:
    """The images of a set as references read them."""
    from ssl_vit.configs import LabelledDataConfig, PoolConfig
    from ssl_vit.data.sources.opening import open_labelled
    from ssl_vit.evaluation.session import on_canvas

    told = dict(zip(field.data[::2], field.data[1::2], strict=True))
    pool = PoolConfig(path, group=told.get("--data.group"), image_column=told.get("--data.image_column"))
    return on_canvas(open_labelled(pool, LabelledDataConfig()), None, field.size, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("trial", "final"))
    parser.add_argument("--set", default="cifar10", choices=list(SETS), help="of images")
    parser.add_argument("--data", default="digits", help="folder with train.parquet and test.parquet")
    parser.add_argument("--work", default="runs/league", help="where runs and finished cells are kept")
    parser.add_argument("--only", action="append", help="some entries by name; default: all")
    parser.add_argument("--processes", type=int, default=2, help="trials at a time")
    parser.add_argument("--threads", type=int, help="of one training; default: 2 in the final, else 1")
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(SEEDS)], help="of the final; others are kept")
    options = parser.parse_args()
    field, final = SETS[options.set], options.stage == "final"
    known = field.finals if final else field.entries
    if unknown := set(options.only or ()) - set(known):
        parser.error(f"{', '.join(unknown)}: not among {', '.join(known)}")
    data = options.data if options.set == "digits" else str(Path(options.data).resolve())
    if options.set != "digits" and options.data == "digits":
        parser.error(f"--data: name the folder of {options.set}")
    if not known:
        parser.error(f"no entry of {options.set} was chosen for the final yet")
    work = Path(options.work).resolve() / ("" if options.set == "cifar10" else options.set)
    cells = work / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    threads = options.threads or (2 if final else 1)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    training: dict[str, tuple[Any, ...]] = {}
    judging: dict[str, tuple[Any, ...]] = {}
    for name in options.only or known:
        entry = known[name]
        for seed in options.seeds if final and name != PIXELS else [0]:
            key = hashlib.sha256(f"{name} {entry} {seed}".encode()).hexdigest()[:8]
            if entry.recipe:
                training[f"train-{key}"] = (train, options.set, entry, str(work / key), data, seed, threads)
            judging[f"{options.stage}-{key}"] = (
                judged, options.set, name, entry, str(work / key), data, seed, final,
            )  # fmt: skip
    run_cells(training, cells, 1 if final else options.processes)
    run_cells(judging, cells, options.processes)
    made = about(same_command("league.py", sys.argv[1:]), f"CPU, {threads} thread{'s' * (threads > 1)}")
    report(options.set, options.stage, cells, made)


_HEADS = {"trial": "Trials, judged on a fifth of the training labels", "final": "Judged on the test images"}


def report(of: str, stage: str, cells: Path, made: dict[str, Any]) -> None:
    """One part of benchmarks/results/league.json and .md (of other sets with their name), from all finished cells.

    Rows that the file has, of entries and seeds that no cell is of, are kept: they were made elsewhere.
    """
    field, rows = SETS[of], dict[tuple[str, int], dict[str, Any]]()
    name = "league" if of == "cifar10" else f"league_{of}"
    stored = RESULTS / f"{name}.json"
    before: dict[str, Any] = json.loads(stored.read_text()).get(stage, {}) if stored.exists() else {}
    for row in before.get("rows", ()):
        where = {"commit": before["about"]["commit"], "machine": machine(before)}
        rows[row["entry"], row["seed"]] = where | row
    for path in cells.glob(f"{stage}-*.json"):
        trained = path.with_name(path.name.replace(stage, "train", 1))
        row = (json.loads(trained.read_text())[0] if trained.exists() else {}) | json.loads(path.read_text())[0]
        rows[row["entry"], row["seed"]] = {"commit": made["commit"], "machine": machine({"about": made})} | row
    shown = {"metric": field.metric, "labels": field.labels, "note": before.get("note", "")}
    parts = {stage: {"about": made, **shown, "rows": sorted(rows.values(), key=lambda row: -row["linear"])}}
    head = [f"# {field.time[0].upper()}{field.time[1:]}: {field.about}", "", paragraph(__doc__, 2)]
    write_parts(RESULTS, name, head, _HEADS, parts, _table)


def _table(stage: str, part: dict[str, Any]) -> list[str]:
    """Entries, best first; of several seeds the mean with its interval over them (Student's t) below."""
    labels = f"{part.get('labels', 500)} labels"
    lines = [
        f"| entry | seed | epochs | minutes | parameters | linear, {labels} | k-NN, all labels |",
        "| --- |" + " ---: |" * 6,
    ]
    for row in part["rows"]:
        size = f"{row['parameters'] / 1e6:.2f} M" if "parameters" in row else ""
        lines.append(
            f"| {row['entry']} | {row['seed']} | {row['epochs']:g} | {row['minutes']:.1f} | {size} | "
            f"{row['linear']:.1f} ± {row['deviation']:.1f} | {row['knn']:.1f} |"
        )
    if part.get("metric") == "balanced":
        lines += ["", "Balanced accuracy: the mean of the classes' own."]
    for name in dict.fromkeys(row["entry"] for row in part["rows"]):
        values = [row["linear"] for row in part["rows"] if row["entry"] == name]
        if len(values) > 2:
            low, high = interval(values)
            mean = sum(values) / len(values)
            lines += ["", f"{name}, {labels}: {mean:.1f}, 95 % interval over seeds {low:.1f} to {high:.1f}."]
    told = {row["entry"]: row["words"] for row in part["rows"] if row.get("words")}
    lines += ["", *(f"- {name}: `{words}`" for name, words in told.items())]
    places: dict[str, list[str]] = {}
    for row in part["rows"]:
        if "commit" in row:
            places.setdefault(f"at commit {row['commit'][:7]} on {row['machine']}", []).append(
                f"{row['entry']} (seed {row['seed']})"
            )
    if len(places) > 1:
        lines += ["", *(f"- Trained {place}: {', '.join(which)}." for place, which in places.items())]
    return [*lines, *(["", part["note"]] if part.get("note") else [])]


def interval(values: list[float]) -> tuple[float, float]:
    """Of the mean of some seeds, 95 %, by Student's t."""
    from statistics import mean, stdev

    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return mean(values) - half, mean(values) + half


if __name__ == "__main__":
    main()
