"""Few labels: what cropping the images does to training from scratch and to fine-tuning.

    python benchmarks/labelled_crops.py cells16 --data FOLDER --backbone RUN
    python benchmarks/labelled_crops.py cifar10 --data FOLDER --backbone docs/models/cifar10
    python benchmarks/labelled_crops.py photographs --data FOLDER --backbone RUN

A box is the random resized crop of 35 to 100 % of the area that this project had; padded is CIFAR's: the whole image,
padded by an eighth of its side and cut at a random place; whole is no crop. All are mirrored, nothing else is varied.
All weights of the backbone's network are trained, from random and from pre-trained ones, with the recipes' own options
and as many steps as a verdict gives. Beside them stands linear-cached on the frozen backbone. A held-out fifth of the
training labels is asked, draws come from the other four; test images take no part. Mean ± deviation over draws.
Finished cells are kept in --work.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contest import open_network, run_cells, train_on
from reports import RESULTS, about, paragraph, same_command, write_parts

WAYS: dict[str, dict[str, Any]] = {
    "box": {"crop": "random_resized", "crop_scale": (0.35, 1.0)},
    "padded": {"crop": "pad", "crop_scale": (1.0, 1.0)},
    "whole": {"crop": "random_resized", "crop_scale": (1.0, 1.0)},
}
"""Options of a run, by the word that tables have for them."""
STARTS = {"scratch": "from scratch", "finetune": "fine-tuned"}


@dataclass(frozen=True)
class Field:
    """One set of images."""

    title: str
    labels: int
    """Of a draw."""
    metric: str
    draws: int
    batch: int


SETS = {
    "cells16": Field("cells16 (40 px, three 16-bit channels), 256 labels", 256, "balanced", 3, 32),
    "cells16-more": Field("cells16, 641 labels", 641, "balanced", 2, 64),
    "cifar10": Field("CIFAR-10, 500 labels", 500, "top1", 2, 64),
    "photographs": Field("imagenette at 64 px, 473 labels", 473, "top1", 2, 32),
    "magtile": Field("magtile at 64 px, 98 labels", 98, "balanced", 3, 32),
}
STEPS = 1000


def cell(name: str, data: str, backbone: str, use: str, way: str, draw: int) -> list[dict[str, Any]]:
    """What one draw of labels reaches: ``use`` is a start, or "probe" for frozen features."""
    import numpy as np
    from ssl_vit.configs import AugmentConfig, LinearConfig
    from ssl_vit.evaluation.features import backbone_extractor, candidate_pools, extract_features
    from ssl_vit.evaluation.few_label import held_out_inside, labelled_draw
    from ssl_vit.evaluation.linear_cached import linear_cached
    from ssl_vit.evaluation.metrics import judge

    field = SETS[name]
    opened = open_network(backbone, data, "auto")
    accelerator, exported, images = opened
    split = held_out_inside(images.train.labels, 0, groups=images.train.groups)
    assert split is not None
    rest, asked = images.train.subset(split[0]), images.train.subset(split[1])
    drawn = labelled_draw(rest, field.labels, draw)
    if use == "probe":
        pool, pools = candidate_pools(exported.backbone)
        extract = backbone_extractor(
            exported.backbone, exported.scale, size=exported.size, pool=pool, device=accelerator.device
        )
        bank, questions = (
            extract_features(extract, each, batch_size=512, device=accelerator.device) for each in (drawn, asked)
        )
        scores = linear_cached(
            bank.x, bank.labels, questions.x, pools, kind="class", names=drawn.classes, cfg=LinearConfig(),
            default_pool=next(iter(pools)), seed=draw, metric=field.metric,
            groups=None if drawn.groups is None else np.unique(drawn.groups, return_inverse=True)[1],
        ).scores  # fmt: skip
        found: dict[str, Any] = judge("class", scores, questions.labels, drawn.classes)
    else:
        found = train_on(opened, use, None, draw, drawn, asked, STEPS, batch=field.batch,
                         augment=AugmentConfig(**WAYS[way]))  # fmt: skip
    net, made = exported.backbone, exported.about
    weights = sum(parameter.numel() for parameter in net.parameters())
    return [{"use": use, "way": way, "draw": draw, "reached": float(found[field.metric]), "labels": len(drawn),
             "asked": len(asked), "network": f"{net.architecture} of {weights:,} weights",
             "made": f"{made.get('objective')}, seed {made.get('seed')}, {exported.weights_hash}"}]  # fmt: skip


def table(_: str, part: dict[str, Any]) -> list[str]:
    """A line per start, a column per crop."""
    import numpy as np

    def shown(use: str, way: str) -> str:
        values = [row["reached"] for row in part["rows"] if (row["use"], row["way"]) == (use, way)]
        return f"{np.mean(values):.1f}" + (f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else "")

    lines = [f"| | {' | '.join(WAYS)} |", "|---|" + " ---: |" * len(WAYS)]
    lines += [f"| {words} | {' | '.join(shown(use, way) for way in WAYS)} |" for use, words in STARTS.items()]
    lines.append(f"| linear-cached, frozen | | | {shown('probe', 'whole')} |")
    one = part["rows"][0]
    draws = len({row["draw"] for row in part["rows"]})
    what = {"balanced": "Balanced accuracy", "top1": "Top-1"}[part["metric"]]
    return [*lines, "", f"{what}, %, of {one['asked']:,} images; {draws} draws; {STEPS:,} steps of {part['batch']}. "
            f"Network: {one['network']}, pre-trained: {one['made']}."]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=list(SETS), help="of images")
    parser.add_argument("--data", required=True, help="its folder")
    parser.add_argument("--backbone", required=True, help="pre-trained on its training images")
    parser.add_argument("--as", dest="key", help="name of this part of the result; default: the set's")
    parser.add_argument("--work", default="runs/labelled_crops", help="where finished cells are kept")
    parser.add_argument("--draws", type=int, help="of labels; default: the set's")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result files")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    field, key = SETS[options.set], options.key or options.set
    cells = Path(options.work).resolve() / key
    cells.mkdir(parents=True, exist_ok=True)
    data, backbone = str(Path(options.data).resolve()), str(Path(options.backbone).resolve())
    wanted = [(use, way) for use in STARTS for way in WAYS] + [("probe", "whole")]
    draws = range(options.draws or field.draws)
    run_cells({f"{use}-{way}-{draw}": (cell, options.set, data, backbone, use, way, draw)
               for draw in draws for use, way in wanted}, cells, options.processes)  # fmt: skip
    rows = [row for path in sorted(cells.glob("*.json")) for row in json.loads(path.read_text())]
    part = {"about": about(same_command("labelled_crops.py", sys.argv[1:])), "metric": field.metric,
            "batch": field.batch, "rows": rows, "set": options.set}  # fmt: skip
    titles = {name: each.title for name, each in SETS.items()}
    titles |= {f"{name}-vit": f"{each.title}, a ViT" for name, each in SETS.items()}
    head = ["# Few labels: crops", "", paragraph(__doc__, 2)]
    write_parts(options.out, "labelled_crops", head, titles, {key: part}, table)


if __name__ == "__main__":
    main()
