"""Tables and the figure of ``small_data.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from contest import NAMES, Plan, batch_size, seconds_until
from reports import RESULTS, made_by


def report(name: str, plan: Plan, cells: Path, work: Path) -> None:
    """benchmarks/results/NAME.json and .md, and NAME-epochs.png where there is a curve."""
    from ssl_vit.runs.provenance import commit, hardware, versions

    found = [row for path in sorted(cells.glob("*.json")) for row in json.loads(path.read_text()) or []]
    rows, trials, curve = ([r for r in found if key in r] for key in ("method", "trial", "curve"))
    given = name if name == "digits" else f"{name} --data FOLDER"
    about: dict[str, Any] = {"command": f"python benchmarks/small_data.py {given}", "commit": commit(),
                             "versions": versions(), "hardware": hardware(), "pre_training": {}}  # fmt: skip
    metric = {"top1": "Top-1 %", "balanced": "Balanced accuracy %"}[plan.metric]
    lines = [f"# {name}: {metric} over the number of labels", "", f"{plan.about}.", "",
             "Pre-trained on one thread of a CPU that other programs shared, one seed:", ""]  # fmt: skip
    for recipe, own in plan.pretrain.items():
        folder = work / recipe
        took, done = seconds_until(folder)
        made, minutes = json.loads((folder / "environment.json").read_text()), took(done["step"]) / 60
        images = done["step"] * batch_size(folder)
        about["pre_training"][recipe] = {"commit": made["commit"], "options": list(own), "images_seen": images,
                                         "minutes": minutes}  # fmt: skip
        lines.append(f"- {NAMES[recipe]}: {images:,} images ({done['epoch']:.1f} epochs) in {minutes:.0f} min at commit"
                     f" {made['commit'][:7]}, `recipes/{recipe}.py {' '.join(own)}`".rstrip())  # fmt: skip
    if "dino" in plan.pretrain:
        lines += ["", "Random weights and training from scratch: the network that MAE trains, with sine-cosine",
                  "positions; DINO's learns its positions, as in the paper."]  # fmt: skip
    lines += [
        "",
        *_table(plan, rows),
        "",
        "Learning rates that were tried and won (half of the steps, a fifth of the first draw's labels):",
        "",
    ]
    for start in (*plan.pretrain, "scratch"):
        for labels in plan.steps:
            own = [t for t in trials if (t["trial"], t["labels"]) == (start, labels)]
            tried = ", ".join(f"{t['rate']:g}: {t[plan.metric]:.1f}" for t in sorted(own, key=lambda t: t["rate"]))
            what = "from scratch" if start == "scratch" else f"fine-tuning {NAMES[start]}"
            lines.append(f"- {what}, {labels or 'all'} labels, {plan.steps[labels]} steps of 64: {tried or 'none'}")
    if curve:
        lines += ["", *_curve(name, curve, rows, plan.metric)]
    lines += ["", made_by(about, ("torch", "timm", "scikit-learn")), ""]
    RESULTS.mkdir(exist_ok=True)
    kept = {"about": about, "rows": rows, "trials": trials, "curve": curve}
    (RESULTS / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text("\n".join(lines))
    print("\n".join(lines))


def _table(plan: Plan, rows: list[dict[str, Any]]) -> list[str]:
    """Every method and protocol over the numbers of labels."""
    import numpy as np

    budgets, trained = sorted({row["labels"] for row in rows}), [NAMES[recipe] for recipe in plan.pretrain]
    kinds = [(m, f"k-NN, {p}") for p in ("cls", "mean") for m in (*trained, "random weights")]
    kinds += [("raw pixels", "k-NN, pixels")]
    kinds += [(m, "linear-cached") for m in (*trained, "random weights", "raw pixels")]
    kinds += [*((m, "fine-tuning") for m in trained), ("from scratch", "supervised")]
    lines = ["Mean ± standard deviation over draws of labels (number of draws in brackets where there are several);",
             "all with each method's one backbone. cls and mean are the pooling that k-NN reads.", "",
             "| features | protocol | " + " | ".join(f"{b:,} labels" for b in budgets) + " |",
             "| --- | --- |" + " ---: |" * len(budgets)]  # fmt: skip
    for method, protocol in kinds:
        line = []
        for budget in budgets:
            values = [r[plan.metric] for r in rows
                      if (r["method"], r["protocol"], r["labels"]) == (method, protocol, budget)]  # fmt: skip
            spread = f" ± {np.std(values, ddof=1):.1f} ({len(values)})" if len(values) > 1 else ""
            line.append(f"{np.mean(values):.1f}{spread}" if values else "-")
        lines.append(f"| {method} | {protocol} | " + " | ".join(line) + " |")
    return lines


def _curve(name: str, curve: list[dict[str, Any]], rows: list[dict[str, Any]], metric: str) -> list[str]:
    """k-NN over the epochs as a table, and as a figure over minutes with what training from scratch reaches."""
    import numpy as np

    from curves import knn_over_time

    labels = curve[0]["labels"]
    scratch = [r[metric] for r in rows if (r["method"], r["labels"]) == ("from scratch", labels)]
    methods = list(dict.fromkeys(r["curve"] for r in curve))
    lines = [f"## k-NN over the epochs, {labels:,} labels (one draw)", "", f"![k-NN over time]({name}-epochs.png)", "",
             "Epoch 0 is the same network at random. From scratch, the same number of labels: "
             f"{np.mean(scratch):.1f} %.", ""]  # fmt: skip
    for method in methods:
        own = [r for r in curve if r["curve"] == method]
        points = sorted({(r["epoch"], r["minutes"]) for r in own})
        lines += ["| " + method + " epoch | " + " | ".join(f"{e:.1f}" for e, _ in points) + " |",
                  "| --- |" + " ---: |" * len(points),
                  "| minutes | " + " | ".join(f"{m:.1f}" for _, m in points) + " |"]  # fmt: skip
        for pool in ("cls", "mean"):
            values = {r["epoch"]: r[metric] for r in own if r["pool"] == pool}
            lines.append(f"| {pool} | " + " | ".join(f"{values[e]:.1f}" for e, _ in points) + " |")
        lines.append("")
    knn_over_time(curve, metric, float(np.mean(scratch)), RESULTS / f"{name}-epochs.png")
    return lines[:-1]
