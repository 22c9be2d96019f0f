"""Evaluation against what others would run: k-NN, linear heads, features; in one process and in turns.

    python benchmarks/bench_eval.py --official CHECKOUT      # of facebookresearch/dino; about fifteen minutes
    python benchmarks/bench_eval.py                          # without it: all but its k-NN

One thread, CPU time of the process, round robin after one round that does not count; ratio = median over rounds of
theirs / ours in the same round, so larger than 1 is faster than they are. k-NN: ours normalises both sets, searches
once and counts votes for all four k; facebookresearch/dino's knn_classifier runs four times, on features that are
normalised already, with 10 classes instead of its default of 1,000; it looks at a hundredth of the queries at a time,
which is few where there are 1,000. scikit-learn runs once, for k = 20 alone; faiss searches only, without votes. Memory
is what a fresh process takes at most beside the features, of which faiss's index keeps a copy. Linear heads: one pass
over the features; the plain loop is nn.Linear, cross_entropy and SGD on features that are standardised already.
Features: 256 images of 32 x 32 in memory; the plain loop is forward_pooled under no_grad on 64 images at a time; what
is kept in the run includes computing its sample of 16. Ours runs with what its scripts set for their process: on AMD
processors with AVX-512 oneDNN multiplies matrices. A run replaces the section of its kind of machine in
results/eval.json and eval.md; those of others are kept.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from reports import RESULTS, about, machine, paragraph, same_command, verdict, write_parts

BANK, QUERIES, WIDTH, CLASSES, KS = 50_000, 1_000, 384, 10, (10, 20, 100, 200)
MANY, LARGE = 10_000, 400_000
"""Queries, and rows of the bank, of the larger searches."""
FAISS = "faiss flat, search alone"
RATES = tuple(float(rate) for rate in np.geomspace(1e-2, 10, 13))
IMAGES = 256
Run = Callable[[], Any]


class Case(NamedTuple):
    """What is compared: ours, and others by name with the ratio to be reached, where there is one."""

    name: str
    ours: Run
    others: dict[str, tuple[Run | None, float | None]]
    """None runs what is not installed."""


def clustered(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features of ten classes that overlap."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (rows,), generator=g)
    centres = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(9))
    return centres[labels] + 4 * torch.randn(rows, WIDTH, generator=g), labels


def knn_case(checkout: str | None, rows: int = BANK, queries: int = QUERIES) -> Case:
    """All four numbers of neighbours."""
    from sklearn.neighbors import KNeighborsClassifier
    from ssl_vit.evaluation.knn import knn_scores

    (bank, labels), (asked, truth) = clustered(rows, 0), clustered(queries, 1)
    unit, unit_asked = (torch.nn.functional.normalize(x, dim=1) for x in (bank, asked))

    def ours() -> dict[int, float]:
        scores = knn_scores(bank, labels, asked, ks=KS, classes=CLASSES)
        return {k: float((found.argmax(1) == truth).float().mean()) for k, found in scores.items()}

    others: dict[str, tuple[Run | None, float | None]] = {}
    if checkout:
        sys.path.insert(0, checkout)
        theirs = importlib.import_module("eval_knn").knn_classifier

        def official() -> dict[int, float]:
            return {k: theirs(unit, labels, unit_asked, truth, k, 0.07, CLASSES)[0] / 100 for k in KS}

        others["facebookresearch/dino, four times"] = (official, 3.1 if queries == QUERIES else None)
        mine, others_own = ours(), official()
        assert all(abs(mine[k] - others_own[k]) < 2.5 / queries for k in KS), (mine, others_own)

    def weights(distance: np.ndarray) -> np.ndarray:
        return np.exp((1.0 - distance) / 0.07)

    if rows == BANK:
        model = KNeighborsClassifier(20, weights=cast(Any, weights), metric="cosine", algorithm="brute", n_jobs=1)
        model.fit(bank.numpy(), labels.numpy())
        others["scikit-learn, k = 20 alone"] = (lambda: model.predict(asked.numpy()), None)
    try:
        faiss = importlib.import_module("faiss")
        faiss.omp_set_num_threads(1)
        flat = faiss.IndexFlatIP(WIDTH)
        flat.add(unit.numpy())
        others[FAISS] = (lambda: flat.search(unit_asked.numpy(), max(KS)), 1.0 if rows == LARGE else None)
    except ImportError:
        others[FAISS] = (None, None)
    return Case(f"k-NN, {rows:,} x {WIDTH} against {queries:,}, k = {'/'.join(map(str, KS))}", ours, others)


def memory_of(what: str) -> float:
    """GB that a search in the larger bank takes at most beside bank and queries, in this process."""
    from ssl_vit.evaluation.knn import knn_scores

    torch.set_num_threads(1)
    (bank, labels), (asked, _) = clustered(LARGE, 0), clustered(QUERIES, 1)
    for x in (bank, asked):
        torch.nn.functional.normalize(x, dim=1, out=x)
    Path("/proc/self/clear_refs").write_text("5")  # Linux forgets the peak of making them
    before = _peak()
    if what == "ours":
        knn_scores(bank, labels, asked, ks=KS, classes=CLASSES)
    else:
        faiss = importlib.import_module("faiss")
        faiss.omp_set_num_threads(1)
        flat = faiss.IndexFlatIP(WIDTH)
        flat.add(bank.numpy())
        flat.search(asked.numpy(), max(KS))
    return _peak() - before


def _peak() -> float:
    """GB of memory that this process had at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


def memory_row() -> dict[str, Any]:
    """Both in a process of their own."""
    found = {}
    for what in ("ours", "faiss"):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            try:
                found[what] = pool.submit(memory_of, what).result()
            except ImportError:
                continue
    return {"what": f"memory, {LARGE:,} x {WIDTH} against {QUERIES:,}", "against": "faiss flat", **found}


def heads_case() -> Case:
    """One head for each of 13 learning rates, on all features."""
    from ssl_vit.configs import LinearConfig
    from ssl_vit.evaluation.linear_cached import _batches, _targets, train_heads

    x, labels = clustered(BANK, 0)
    cfg = replace(LinearConfig(), passes=1.0, min_steps=1)
    target = _targets(labels.numpy(), "class", CLASSES, np.ones((1, BANK), dtype=bool), x)
    steps = -(-BANK // cfg.batch_size)
    ready = (x - x.mean(0)) / x.std(0) / WIDTH**0.5

    def stacked(rates: tuple[float, ...] = RATES) -> torch.Tensor:
        return train_heads(x, target, "class", [(rate, 1e-4) for rate in rates], cfg, 0).weight

    def alone() -> list[torch.Tensor]:
        return [stacked((rate,)) for rate in RATES]

    def plain() -> list[torch.nn.Linear]:
        return [plain_head(rate) for rate in RATES]

    def plain_head(rate: float) -> torch.nn.Linear:
        head = torch.nn.Linear(WIDTH, CLASSES)
        optimizer = torch.optim.SGD(head.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _, rows in zip(range(steps), _batches(BANK, cfg.batch_size, 0, x.device), strict=False):
            loss = torch.nn.functional.cross_entropy(head(ready[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        return head

    name = f"{len(RATES)} linear heads, {BANK:,} x {WIDTH}, {CLASSES} classes, one pass"
    return Case(name, stacked, {"a plain loop, head after head": (plain, 2.5),
                                "ours, head after head": (alone, 2.5)})  # fmt: skip


def feature_cases(folder: Path) -> list[Case]:
    """A ViT-Ti/4's features, computed and kept."""
    from ssl_vit.configs import ResolvedModel
    from ssl_vit.data.decoding.formats import Format
    from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
    from ssl_vit.data.scale import PixelScale
    from ssl_vit.evaluation.features import backbone_extractor, extract_features, images_at_once
    from ssl_vit.evaluation.store import kept_features
    from ssl_vit.models.build import build_backbone
    from ssl_vit.training.products import products_chosen

    torch.manual_seed(0)
    cpu, scale = torch.device("cpu"), PixelScale((0.5,) * 3, (0.25,) * 3, 8)
    model = ResolvedModel("vit_tiny_patch16_224", 32, 4, 192, 12, 3, "learnable", "cls")
    backbone = build_backbone(model, 3).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, 3, 32, 32)).astype(np.uint8)
    ids = np.arange(IMAGES)
    sizes = Sizes((32, 32), 32)
    images = ImageSet("noise", ArrayRows(pixels, "noise"), ids, Format(3, 8), sizes, "noise", labels=ids % 10)
    extract = backbone_extractor(backbone, scale, size=32, pool="cls", device=cpu)
    at_once = images_at_once(None, 32, cpu)

    def ours() -> Any:
        return extract_features(extract, images, batch_size=at_once, device=cpu)

    def plain() -> torch.Tensor:
        with torch.no_grad():
            parts = torch.from_numpy(pixels).split(64)
            return torch.cat([backbone.forward_pooled((p / 255 - 0.5) / 0.25, pool="cls") for p in parts])

    def kept() -> Any:
        about = {"network": "benchmark"}
        return kept_features(folder, extract, about, images, writes=True, batch_size=at_once, device=cpu)

    def again() -> Any:
        with products_chosen():
            return ours()

    with products_chosen():
        kept()

    return [
        Case(f"features of {IMAGES} images, ViT-Ti/4, fp32", ours, {"a plain loop under no_grad": (plain, None)}),
        Case(f"the same {IMAGES} from RUN/features", kept, {"computing them": (again, None)}),
    ]


def measure(runs: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of every round, each in turn, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if number:
                seconds[name].append(time.process_time() - start)
    return seconds


def rows_of(case: Case, rounds: int) -> list[dict[str, Any]]:
    """A row for each of the others."""
    from ssl_vit.training.products import products_chosen

    def ours() -> Any:
        with products_chosen():
            return case.ours()

    installed = {name: run for name, (run, _) in case.others.items() if run is not None}
    seconds = measure({"ours": ours, **installed}, rounds)
    rows = []
    for name, (_, bar) in case.others.items():
        row = {"what": case.name, "against": name, "bar": bar, "ours_ms": 1e3 * statistics.median(seconds["ours"])}
        if name in seconds:
            ratios = sorted(theirs / mine for mine, theirs in zip(seconds["ours"], seconds[name], strict=True))
            row |= {"theirs_ms": 1e3 * statistics.median(seconds[name]), "ratio": statistics.median(ratios),
                    "least": ratios[0], "most": ratios[-1]}  # fmt: skip
        rows.append(row)
        print(row, flush=True)
    return rows


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    if "ours_ms" not in row:
        theirs = f"{row['faiss']:.2f} GB" if "faiss" in row else "not installed"
        return f"| {row['what']} | {row['against']} | {row['ours']:.2f} GB | {theirs} | | |"
    if "ratio" not in row:
        return f"| {row['what']} | {row['against']} | {row['ours_ms']:,.0f} | not installed | | |"
    bar = verdict(row["ratio"], row["bar"])
    return (
        f"| {row['what']} | {row['against']} | {row['ours_ms']:,.0f} | {row['theirs_ms']:,.0f} | {row['ratio']:.2f} "
        f"({row['least']:.2f} to {row['most']:.2f}) | {bar} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", help="a checkout of facebookresearch/dino")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for eval.json and eval.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    made = about(same_command("bench_eval.py", sys.argv[1:]), rounds=options.rounds)
    with tempfile.TemporaryDirectory() as place:
        cases = [knn_case(options.official), heads_case(), *feature_cases(Path(place))]
        rows = [row for case in cases for row in rows_of(case, options.rounds)]
    few = max(1, options.rounds // 2)
    rows += rows_of(knn_case(options.official, queries=MANY), few)
    rows += [*rows_of(knn_case(None, rows=LARGE), few), memory_row()]
    head = ["# Evaluation against what others would run", "", paragraph(__doc__, 2)]
    write_parts(options.out, "eval", head, {"eval": "All"}, {"eval": {"about": made, "rows": rows}}, table, summary)


def table(_: str, part: dict[str, Any]) -> list[str]:
    """What was measured on one kind of machine."""
    return [
        "| what | against | ours, ms | theirs, ms | ratio (least to most of the rounds) | bar |",
        "| --- | --- | ---: | ---: | ---: | --- |", *map(line, part["rows"]),
    ]  # fmt: skip


def summary(parts: dict[str, Any]) -> list[str]:
    """The table above all others: k-NN on every kind of machine."""
    lines = ["", "| search | against | machine | times as fast |", "| --- | --- | --- | ---: |"]
    lines += [
        f"| {row['what']} | {row['against']} | {machine(part)} | {row['ratio']:.2f} |"
        for part in parts.values()
        for row in part["rows"]
        if row["what"].startswith("k-NN") and "ratio" in row
    ]
    return lines


if __name__ == "__main__":
    main()
