"""What keeps DINO alive on 1,438 images of 8 pixels? The preset for digits, and one option changed at a time.

    python benchmarks/dino_options.py        # about five minutes on two cores; continues where it was stopped

recipes/dino.py without labels on all 1,438 training digits, one seed, a quarter of the preset's budget (35 epochs);
then k-NN (k = 20) inside the training labels: a fixed fifth asks the other four. The test images are not touched.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from contest import knn_votes, open_network, pretrain, run_cells
from reports import RESULTS, made_by

_PAPER = ("--dino.centring", "mean", "--dino.teacher_temp", "0.04", "--crops.local_crops", "4")
VARIANTS = {
    "preset": (),
    "the paper's centring": ("--dino.centring", "mean"),
    "the paper's centring, temperature .04, 4 local crops": _PAPER,
    "temperature .04": ("--dino.teacher_temp", "0.04"),
    "4 local crops": ("--crops.local_crops", "4"),
    "sine-cosine positions": ("--model.positions", "sincos"),
}


def measure(name: str, folder: str) -> list[dict[str, Any]]:
    """Pre-trains one variant and asks its training labels."""
    import numpy as np
    from ssl_vit.evaluation.features import backbone_extractor, extract_features
    from ssl_vit.evaluation.few_label import held_out_inside

    pretrain("dino", folder, ("--fit.epochs", "35", *VARIANTS[name], "--dino.on_collapse", "warn"))
    accelerator, exported, data = open_network(folder, precision="auto")  # this process has trained so
    split = held_out_inside(data.train.labels, 0)
    assert split is not None
    row: dict[str, Any] = {"variant": name}
    for when, backbone in (("start", exported.with_random_weights(0)), ("end", exported.backbone)):
        for pool in ("cls", "mean"):
            extract = backbone_extractor(
                backbone, exported.scale, size=exported.size, pool=pool, device=accelerator.device
            )
            found = extract_features(extract, data.train, batch_size=512, device=accelerator.device)
            bank, asked = (found.subset(np.sort(part)) for part in split)
            right = knn_votes(bank, asked, 10).argmax(1) == asked.labels
            row[f"{when}_{pool}"] = 100 * float(right.mean())
    health = json.loads((Path(folder) / "health.jsonl").read_text().splitlines()[-1])
    keys = ("ln_out_dim", "teacher_entropy", "marginal_entropy", "kl", "effective_rank")
    return [row | {key: health[key] for key in keys}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default="runs/dino_options", help="where runs and finished cells are kept")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    work = Path(options.work).resolve()
    cells = work / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    run_cells({_key(n): (measure, n, str(work / _key(n))) for n in VARIANTS}, cells, options.processes)
    report(cells, work)


def _key(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)


def report(cells: Path, work: Path) -> None:
    """benchmarks/results/dino_options.json and .md."""
    from ssl_vit.runs.provenance import commit, hardware, versions

    rows = [json.loads((cells / f"{_key(name)}.json").read_text())[0] for name in VARIANTS]
    about = {"command": "python benchmarks/dino_options.py", "commit": commit(), "versions": versions(),
             "hardware": hardware()}  # fmt: skip
    lines = ["# DINO on digits: one option at a time", "",
             "k-NN top-1 % (k = 20) inside the 1,438 training labels after 35 epochs; entropies in nats. The mean",
             "answer's entropy less the teacher's is what the answers tell about an image: near 0 is a collapse.", "",
             "| | k-NN, mean | k-NN, cls | ln(outputs) | teacher entropy | of its mean answer | KL | effective rank |",
             "| --- |" + " ---: |" * 7,
             f"| random weights | {rows[0]['start_mean']:.1f} | {rows[0]['start_cls']:.1f} | | | | | |"]  # fmt: skip
    for r in rows:
        lines.append(
            f"| {r['variant']} | {r['end_mean']:.1f} | {r['end_cls']:.1f} | {r['ln_out_dim']:.2f} | "
            f"{r['teacher_entropy']:.2f} | {r['marginal_entropy']:.2f} | {r['kl']:.2f} | {r['effective_rank']:.1f} |"
        )
    lines += ["", "One seed; a held-out fifth is 288 images: differences below about four points are within chance."]
    lines += ["", made_by(about, ("torch", "timm", "scikit-learn")), ""]
    (RESULTS / "dino_options.json").write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    (RESULTS / "dino_options.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
