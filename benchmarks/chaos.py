"""Kills commands at random and at named points, types them again, and counts what became different.

    python benchmarks/chaos.py --trials 200

Every trial draws a command (mae, dino, lejepa, supervised, finetune, knn, verdict), 0 or 2 loader processes, one or two
processes, accumulation or not, which processes are killed (one, or both), and where: at the n-th call or return of any
function, or at a named point (before and after fsync and renames, within a line of a log, before the optimiser, after a
step). The same command is then typed again until it is done, with another kill in every third trial.

What counts: bytes of weights, checkpoints, metrics, results and answers that differ from those of the same command that
nobody killed; optimiser steps lost beyond the newest checkpoint that was written; runs that hung or did not go on.
Finished trials are kept in --work, so the tally goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

from made_processes import Warm  # noqa: E402 - processes that need not import torch again

from chaos_trap import POINTS  # noqa: E402 - beside this file
from reports import RESULTS, about, made_by, paragraph, same_command, write  # noqa: E402

SMALL = ["--model.width", "16", "--model.depth", "1", "--model.heads", "2", "--model.img_size", "16",
         "--model.patch_size", "8"]  # fmt: skip
FIT = ["--fit.batch_size", "8", "--fit.epochs", "0.000001", "--fit.min_steps", "10", "--fit.checkpoint_steps", "3",
       "--fit.log_every", "1"]  # fmt: skip
VERDICT = [
    "--verdict.labels", "[10]", "--verdict.seeds", "1", "--verdict.train_draws", "2", "--verdict.probe_draws", "2",
    "--verdict.trials", "2", "--verdict.length", "0.02", "--verdict.pretraining", "0.02", "--verdict.matched_draws",
    "2", "--verdict.methods", "mae,random,pixels", "--verdict.budget", "1d",
]  # fmt: skip
COMMANDS = ("mae", "dino", "lejepa", "supervised", "finetune", "knn", "verdict")
SCRIPTS = {name: f"eval/{name}.py" if name in ("finetune", "knn", "verdict") else f"recipes/{name}.py"
           for name in COMMANDS}  # fmt: skip
MOST_STARTS = 6
_TIMED = ("made_with", "command", "images_per_second", "peak_memory")
"""What results say of their making, beside everything with seconds in its name."""


@dataclass(frozen=True)
class Setting:
    """What is started."""

    command: str
    workers: int
    processes: int
    accumulated: bool

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.command}-{self.workers}w-{self.processes}p{'-accumulated' * self.accumulated}"

    def words(self) -> list[str]:
        """Its command line, in a folder of its own beside the images."""
        loading = ["--data.workers", str(self.workers), "--data.cache", "none"]
        split = ["--fit.micro_batch", "2"] * self.accumulated
        match self.command:
            case "knn":
                return ["--backbone", "base", "--eval.data.path", "../images", "--run.dir", "r"]
            case "finetune":
                options = ["--backbone", "base", "--eval.data.path", "../images", *loading, *FIT, *split]
                return [*options, "--run.dir", "r"]
            case "verdict":
                return ["--data.path", "../images", *loading, *VERDICT, *SMALL, "--run.dir", "r"]
            case "dino":
                crops = ["--crops.local_crops", "2", "--dino.out_dim", "32"]
                return ["--data.path", "../images", *loading, *SMALL, *FIT, *crops, *split, "--run.dir", "r"]
            case _:
                return ["--data.path", "../images", *loading, *SMALL, *FIT, *split, "--run.dir", "r"]


@dataclass(frozen=True)
class Trial:
    """What is killed, and where."""

    number: int
    setting: Setting
    ranks: tuple[int, ...]
    kills: tuple[tuple[str, float], ...]
    """Points, and where among the times that they come: a share in [0, 1)."""


def drawn(number: int, seed: int, commands: tuple[str, ...] = COMMANDS) -> Trial:
    """A trial, the same whenever it is drawn."""
    chance = random.Random(f"{seed} {number}")
    turns = commands + 2 * tuple(name for name in commands if name != "verdict")  # a verdict takes minutes
    command = turns[number % len(turns)]
    processes, trains = chance.choice((1, 2)), command not in ("knn", "verdict")
    workers = 0 if command == "knn" else chance.choice((0, 2))  # which has no option for them
    setting = Setting(command, workers, processes, trains and chance.random() < 0.5)
    ranks = chance.choice(((0,), (1,), (0, 1))) if processes == 2 else (0,)
    points = [chance.choice((POINTS[0], chance.choice(POINTS[1:]))) for _ in range(2 if number % 3 == 2 else 1)]
    return Trial(number, setting, ranks, tuple((point, chance.random()) for point in points))


def save_images(folder: Path) -> None:
    """Two classes of 60 grey images of one size."""
    rng = np.random.default_rng(0)
    for name, level in (("bright", 150), ("dark", 40)):
        (folder / name).mkdir(parents=True)
        for i in range(60):
            pixels = (level + rng.integers(0, 60, (16, 16))).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i:02d}.png")


class Place:
    """Folders and processes of a tally."""

    def __init__(self, work: Path) -> None:
        self.work, self.warm = work, Warm()
        work.mkdir(parents=True, exist_ok=True)
        if not (work / "images").exists():
            part = work / "images.part"
            shutil.rmtree(part, ignore_errors=True)
            save_images(part)
            part.replace(work / "images")

    def start(self, folder: Path, setting: Setting, **chaos: Any) -> tuple[int, str]:
        """Exit status and what was said, of a command in a folder."""
        notes = json.dumps({"notes": str(folder / "notes"), **chaos})
        done = self.warm(
            ROOT / "benchmarks" / "chaos_trap.py", str(ROOT / SCRIPTS[setting.command]), *setting.words(), cwd=folder,
            processes=setting.processes, CHAOS=notes, ACCELERATE_USE_CPU="1", SSL_VIT_CACHE=str(self.work / "cache"),
        )  # fmt: skip
        return done.returncode, done.stderr

    def prepared(self, folder: Path, setting: Setting) -> None:
        """An empty folder, with a network where the command takes one."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if setting.command in ("finetune", "knn"):
            base = self.reference(Setting("mae", 0, 1, False))
            shutil.copytree(base / "r", folder / "base")

    def reference(self, setting: Setting) -> Path:
        """What the command leaves that nobody kills, and how often it comes to every point."""
        folder = self.work / f"whole-{setting.name}"
        if not (folder / "done").exists():
            self.prepared(folder, setting)
            status, said = self.start(folder, setting, count=True)
            if status:
                raise SystemExit(f"{setting.name} fails by itself ({status}):\n{said[-2000:]}")
            (folder / "done").touch()
        return folder

    def tried(self, trial: Trial) -> dict[str, Any]:
        """Kills, goes on, compares."""
        whole = self.reference(trial.setting)
        counts = json.loads((whole / "notes.counts").read_text())
        folder = self.work / "trial"
        self.prepared(folder, trial.setting)
        starts, killed, lost, newest, said = 0, list[str](), 0, 0, ""
        kills = [(point, 1 + int(share * counts[point])) for point, share in trial.kills if counts[point]]
        status = -1
        while status and starts < MOST_STARTS:
            point, n = kills[starts] if starts < len(kills) else ("", 0)
            chaos = {"point": point, "n": n, "ranks": trial.ranks} if point else {}
            status, said = self.start(folder, trial.setting, **chaos)
            starts += 1
            if status == -signal.SIGKILL:
                killed.append(f"{point} {n}")
            told = [line.split() for line in _read(folder / "notes").splitlines()]
            for what, step in told:
                if what == "loaded" and trial.setting.command not in ("verdict", "knn"):
                    lost = max(lost, newest - int(step))
                elif what == "saved":
                    newest = int(step)
            (folder / "notes").unlink(missing_ok=True)
            if status == -signal.SIGALRM:
                break
        left = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in (".part", ".lock")]
        return {
            **asdict(trial), "killed": killed, "starts": starts, "status": status, "lost_steps": lost,
            "differing": differing(whole / "r", folder / "r"), "left": left, "said": said[-1500:] if status else "",
        }  # fmt: skip


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def differing(whole: Path, other: Path) -> dict[str, int]:
    """Bytes that differ, by file; of files that only one of both has, all."""
    one, two = ({str(p.relative_to(place)): p for p in counted(place)} for place in (whole, other))
    found = {}
    for name in sorted({*one, *two}):
        a, b = (content(files[name]) if name in files else b"" for files in (one, two))
        short = min(len(a), len(b))
        differ = np.frombuffer(a[:short], np.uint8) != np.frombuffer(b[:short], np.uint8)
        if bytes_ := int(differ.sum()) + abs(len(a) - len(b)):
            found[name] = bytes_
    return found


def counted(run: Path) -> Iterator[Path]:
    """Files of a run that must be the same."""
    for path in run.rglob("*"):
        names = ("metrics.jsonl", "health.jsonl", "model.safetensors")
        if path.name in names or path.suffix == ".npz" or (path.parent.name == "results" and path.suffix == ".json"):
            yield path
    newest = sorted((run / "checkpoints").glob("step_*.pt"))
    yield from newest[-1:]


def content(path: Path) -> bytes:
    """What is compared of a file: numbers, not when and how fast they were made."""
    if path.suffix == ".pt":
        return b"".join(_tensors(torch.load(path, weights_only=True)))
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as packed:  # whose entries carry the time of day
            return b"".join(name.encode() + packed.read(name) for name in sorted(packed.namelist()))
    if path.suffix == ".json":
        return json.dumps(_untimed(json.loads(path.read_text())), sort_keys=True).encode()
    return path.read_bytes()


def _tensors(value: Any, name: str = "") -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        yield name.encode() + value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _tensors(inner, f"{name}/{key}")
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from _tensors(inner, f"{name}/{i}")
    else:
        yield f"{name}={value!r}".encode()


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _untimed(inner) for key, inner in value.items() if key not in _TIMED and "second" not in key}
    return [_untimed(inner) for inner in value] if isinstance(value, list) else value


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The tally."""
    points = Counter(kill.rpartition(" ")[0] for trial in found for kill in trial["killed"])
    return {
        "trials": len(found),
        "kills": sum(points.values()),
        "trials_with_another_byte": sum(bool(trial["differing"]) for trial in found),
        "differing_bytes": sum(sum(trial["differing"].values()) for trial in found),
        "steps_lost_beyond_the_newest_checkpoint": sum(trial["lost_steps"] for trial in found),
        "did_not_go_on": sum(trial["status"] != 0 for trial in found),
        "left_behind": sum(len(trial["left"]) for trial in found),
        "kills_by_point": dict(sorted(points.items())),
    }


def lines(found: list[dict[str, Any]], made: dict[str, Any]) -> list[str]:
    """The page."""
    total = summary(found)
    text = ["# Killed, and typed again", "", *(paragraph(__doc__, i) + "\n" for i in (2, 3)), "| | |", "| --- | ---: |"]
    text += [f"| {name.replace('_', ' ')} | {n:,} |" for name, n in total.items() if not isinstance(n, dict)]
    text += ["", "| killed at | times |", "| --- | ---: |"]
    text += [f"| {point} | {n:,} |" for point, n in total["kills_by_point"].items()]
    text += ["", "| command | loaders | processes | accumulated | trials | kills | other bytes | lost steps |",
             "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    settings = sorted({tuple(trial["setting"].values()) for trial in found}, key=lambda s: (COMMANDS.index(s[0]), s))
    for key in settings:
        own = [trial for trial in found if tuple(trial["setting"].values()) == key]
        each = summary(own)
        text.append(
            f"| {key[0]} | {key[1]} | {key[2]} | {'yes' if key[3] else 'no'} | {len(own)} | {each['kills']} | "
            f"{each['differing_bytes']:,} | {each['steps_lost_beyond_the_newest_checkpoint']} |"
        )
    bad = [trial for trial in found if trial["differing"] or trial["status"] or trial["lost_steps"] or trial["left"]]
    for trial in bad:
        text += ["", f"Trial {trial['number']}: {trial['setting']}, killed at {trial['killed']}: status "
                 f"{trial['status']}, differing {trial['differing']}, lost {trial['lost_steps']}, left "
                 f"{trial['left']}. {' '.join(trial['said'].split())[-300:]}"]  # fmt: skip
    return [*text, "", made_by(made, ("torch", "accelerate"))]


def main() -> None:
    """Writes results/chaos.json and chaos.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=COMMANDS)
    parser.add_argument("--work", type=Path, default=Path("chaos"), help="where finished trials are kept")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    place = Place(options.work.resolve())
    kept = place.work / "trials.jsonl"
    found = {trial["number"]: trial for trial in map(json.loads, _read(kept).splitlines())}
    try:
        for number in range(options.trials):
            if number in found:
                continue
            found[number] = place.tried(drawn(number, options.seed, tuple(options.commands)))
            with kept.open("a") as file:
                file.write(json.dumps(found[number]) + "\n")
            trial = found[number]
            sys.stdout.write(
                f"{number + 1}/{options.trials} {trial['setting']['command']} killed at {trial['killed']}: "
                f"{sum(trial['differing'].values())} bytes differ, {trial['lost_steps']} steps lost, status "
                f"{trial['status']}\n"
            )
            sys.stdout.flush()
    finally:
        place.warm.close()
    chosen = [found[number] for number in range(options.trials)]
    made = about(same_command("chaos.py", sys.argv[1:]))
    write(options.out, "chaos", {"about": made, "summary": summary(chosen), "rows": chosen}, lines(chosen, made))
    sys.stdout.write(f"{options.out / 'chaos.md'}\n")


if __name__ == "__main__":
    main()
