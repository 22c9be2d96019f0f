"""What some minutes of one GPU are worth on small images: CIFAR-10, by a ResNet-18, without and with all labels.

    python benchmarks/gpu_training.py --data FOLDER       # FOLDER holds train.parquet and test.parquet of CIFAR-10
    python benchmarks/gpu_training.py --tiny              # toys on a CPU, to see that it works
    python benchmarks/gpu_training.py --data FOLDER --only LeJEPA fine-tuned --seconds 350   # of pre-training

LeJEPA sees the training images without labels, less those that show test images, for so many epochs as its seconds
allow, by the speed of some epochs before, compiled or not as is faster. Its last step is judged on the test images: by
k-NN (k = 20) with all labels, by linear-cached with 500 of them, whose options are chosen by cross-validation inside
those (ten draws), and fine-tuned with all. The same network is trained from scratch with all labels; both have SGD,
padded crops, mirror images, RandAugment and erasing. What the JPEG copy costs is told by ResNet-20, which has 91.25 on
the lossless images (He et al. 2016, section 4.2): SGD, padded crops and mirror images, a cosine in place of steps. One
seed; no option was chosen by a test image. What is trained in one call beside each other shares the GPU, and seconds
are longer then.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contest import reached
from reports import about, gpu_folder, paragraph, same_command, write_parts

ROOT = Path(__file__).resolve().parent.parent
LABELS = 500
_PROBE = 6
"""Epochs by which the speed of a job is told."""


@dataclass(frozen=True)
class Job:
    """One training."""

    title: str
    script: str
    words: tuple[str, ...]
    seconds: float
    """What it may take."""
    after: str = ""
    """Whose backbone it begins from."""
    most: int = 10**6
    """Epochs beyond which it gains nothing more."""
    compiles: bool = False
    """Whether it is tried compiled, too."""

    @property
    def folder(self) -> str:
        """Name of its run."""
        return self.title.replace(" ", "-")


_RESNET = (
    "--model.name", "resnet_small_images", "--model.args",
    "{layers: [2, 2, 2, 2], channels: [64, 128, 256, 512], stem_width: 64, output_stride: 32}",
)  # fmt: skip
_TOY = ("--model.name", "resnet_micro")
_RESNET_20 = ("--model.name", "resnet_small_images", "--model.args",
              "{layers: [3, 3, 3], channels: [16, 32, 64], stem_width: 16, output_stride: 32}")  # fmt: skip
_PLAIN = ("--augment.crop", "pad", "--supervised.mixup", "0", "--supervised.cutmix", "0", "--supervised.drop_path", "0",
          "--fit.clip_grad", "null", "--optim.name", "sgd")  # fmt: skip


def jobs(tiny: bool, seconds: float) -> list[list[Job]]:
    """Rows of jobs that run one after the other; rows run beside each other.

    Args:
        tiny: Toys.
        seconds: Of pre-training.
    """
    network = _TOY if tiny else _RESNET
    views = () if tiny else ("--crops.global_size", "24")
    batch = ("--fit.batch_size", "64" if tiny else "512")
    pretraining = Job(
        "LeJEPA", "recipes/lejepa.py",
        (*network, *views, "--crops.local_crops", "0", "--crops.global_scale", "[0.2, 1.0]", *batch,
         "--optim.base_lr", "1.5e-3"), 2 if tiny else seconds, compiles=not tiny,
    )  # fmt: skip
    sgd = (*_PLAIN, *batch, "--augment.policy", "randaugment", "--augment.erasing", "0.25", "--optim.weight_decay",
           "5e-4", "--supervised.ema_decay", "0.999")  # fmt: skip
    scratch = Job(
        "from scratch", "recipes/supervised.py", (*network, *sgd, "--optim.lr", "0.2"), 2 if tiny else 200, most=150
    )
    tuned = Job("fine-tuned", "eval/finetune.py", (*sgd, "--optim.lr", "0.1", "--optim.layer_decay", "1"),
                2 if tiny else 150, "LeJEPA", most=100)  # fmt: skip
    known = Job(
        "ResNet-20", "recipes/supervised.py",
        (*(_TOY if tiny else _RESNET_20), *_PLAIN, "--fit.batch_size", "64" if tiny else "256", "--augment.policy",
         "none", "--augment.erasing", "0", "--supervised.label_smoothing", "0", "--supervised.ema_decay", "0",
         "--optim.weight_decay", "1e-4", "--optim.lr", "0.2"), 2 if tiny else 300, most=164,
    )  # fmt: skip
    return [[pretraining, tuned], [known, scratch]]


def run(script: str, words: tuple[str, ...]) -> str:
    """A script in a process of its own; what it printed."""
    done = subprocess.run([sys.executable, str(ROOT / script), *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{script} {' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def rate(folder: Path) -> float:
    """Images per second, the median of a run's log after its first lines."""
    lines = [json.loads(line)["images_per_second"] for line in (folder / "timing.jsonl").read_text().splitlines()]
    return statistics.median(lines[len(lines) // 3 : -1] or lines)


def probed(job: Job, words: tuple[str, ...], work: Path) -> tuple[float, tuple[str, ...]]:
    """Images per second, and with which option: compiled or not, tried beside each other."""

    def speed(compiled: str) -> float:
        place = work / f"{job.folder}-probe-{compiled}"
        look = ("--fit.watch", "knn") if job.script == "recipes/lejepa.py" and compiled == "false" else ()
        try:
            run(job.script, (*words, *look, "--fit.compile", compiled, "--fit.epochs", f"{_PROBE}", "--run.dir",
                             str(place)))  # fmt: skip
        except RuntimeError as reason:
            print(f"{job.title}, compile {compiled}: {reason}", flush=True)
            return 0.0
        print(f"{job.title}, compile {compiled}: {rate(place):,.0f} images/s", flush=True)
        return rate(place)

    kinds = ("false", "true") if job.compiles else ("false",)
    with ThreadPoolExecutor(2) as pool:
        found, kind = max(zip(pool.map(speed, kinds), kinds, strict=True))
    if not found:
        raise RuntimeError(f"{job.title} does not run")
    return found, ("--fit.compile", kind)


def trained(job: Job, data: str, work: Path, images: int) -> dict[str, Any]:
    """One job: its speed first, then as many epochs as fit."""
    source = ("--backbone", str(work / job.after)) if job.after else ("--data.path", data)
    words = (*source, *job.words, "--seed", "0", "--fit.checkpoint_steps", "1000000", "--fit.log_every", "20")
    expected, option = probed(job, words, work)
    epochs = max(1, min(job.most, int(expected * job.seconds / images)))
    print(f"{job.title}: {epochs} epochs", flush=True)
    printed = run(job.script, (*words, *option, "--fit.epochs", f"{epochs}", "--run.dir", str(work / job.folder)))
    (work / f"{job.folder}.txt").write_text(printed)
    told = " ".join(word if " " not in word else f'"{word}"' for word in (job.script, *job.words, *option))
    speed = rate(work / job.folder)
    return {"job": job.title, "epochs": epochs, "seconds": epochs * images / speed, "images_per_second": speed,
            "words": told}  # fmt: skip


def judged(folder: Path, row: dict[str, Any], tiny: bool) -> dict[str, Any]:
    """What frozen features are worth."""
    from ssl_vit.evaluation.features import backbone_extractor, candidate_pools

    from contest import open_network
    from league import judge_features
    from league_sets import SETS

    field = SETS["digits" if tiny else "cifar10"]
    accelerator, exported, data = open_network(str(folder))
    pool, columns = candidate_pools(exported.backbone)
    exported.backbone.to(accelerator.device)
    extract = backbone_extractor(exported.backbone, exported.scale, size=exported.size, pool=pool,
                                 device=accelerator.device)  # fmt: skip
    parameters = sum(p.numel() for p in exported.backbone.parameters())
    return row | {"parameters": parameters} | judge_features(field, extract, columns, data, accelerator.device,
                                                             test=True)  # fmt: skip


def table(_: str, part: dict[str, Any]) -> list[str]:
    """Rows, and each one's command."""
    lines = [f"| training | epochs | seconds | images/s | top-1 with all labels | linear, {part['labels']} labels | "
             "k-NN, all labels |", "| --- |" + " ---: |" * 6]  # fmt: skip
    for row in part["rows"]:
        top1 = f"{row['top1']:.1f}" if "top1" in row else ""
        few = f"{row['linear']:.1f} ± {row['deviation']:.1f} | {row['knn']:.1f}" if "linear" in row else "|"
        lines.append(f"| {row['job']} | {row['epochs']} | {row['seconds']:.0f} | {row['images_per_second']:,.0f} | "
                     f"{top1} | {few} |")  # fmt: skip
    told = [f"- {row['job']}, commit {row['commit']}: `{row['words']}`" for row in part["rows"]]
    return [*lines, "", *told, *(["", part["note"]] if part.get("note") else [])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits", help="folder with train.parquet and test.parquet")
    parser.add_argument("--work", default="runs/gpu_training", help="where runs are kept")
    parser.add_argument("--only", nargs="+", help="titles of jobs; default: all")
    parser.add_argument("--seconds", type=float, default=230, help="of pre-training")
    parser.add_argument("--tiny", action="store_true", help="toys on a CPU, to see that it works")
    parser.add_argument("--out", type=Path, help="folder of training.json and training.md; default: $OUT, or "
                        "results/gpu-NAME")  # fmt: skip
    options = parser.parse_args()
    import torch

    from timing import device_name

    device = torch.device("cpu" if options.tiny else "cuda")
    out = options.out or gpu_folder(device_name(device))
    data = options.data if options.tiny else str(Path(options.data).resolve())
    work, images = Path(options.work).resolve(), 1438 if options.tiny else 50_000
    work.mkdir(parents=True, exist_ok=True)
    made = about(same_command("gpu_training.py", sys.argv[1:]), device_name(device))
    before = json.loads((out / "training.json").read_text()) if (out / "training.json").exists() else {}
    rows, note = before.get("cifar10", {}).get("rows", []), before.get("cifar10", {}).get("note", "")

    def save(row: dict[str, Any]) -> None:
        print(row, flush=True)
        rows[:] = [each for each in rows if each["job"] != row["job"]] + [row | {"commit": made["commit"][:7]}]
        part = {"about": made, "labels": 10 if options.tiny else LABELS, "rows": rows, "note": note}
        head = [f"# Trainings on {device_name(device)}", "", paragraph(__doc__, 2)]
        write_parts(out, "training", head, {"cifar10": "CIFAR-10, its copy in JPEG"}, {"cifar10": part}, table)

    def follow(row: list[Job]) -> None:
        for job in row:
            found = trained(job, data, work, images)
            if job.script == "recipes/lejepa.py":
                save(judged(work / job.folder, found, options.tiny))
            else:
                save(found | {"top1": reached(work / job.folder, "top1")})

    asked = [[job for job in row if options.only is None or job.title in options.only]
             for row in jobs(options.tiny, options.seconds)]  # fmt: skip
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(follow, row) for row in asked]:
            done.result()


if __name__ == "__main__":
    main()
