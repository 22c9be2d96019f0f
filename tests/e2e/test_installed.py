"""What people install: the wheel alone, in an environment and a folder of its own, does what a clone does."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("ssl_vit", "recipes", "eval", "pyproject.toml", "setup.py", "README.md", "LICENSE")
VERDICT = [
    "--data.path", "images", "--verdict.labels", "[10]", "--verdict.seeds", "1", "--verdict.train_draws", "2",
    "--verdict.probe_draws", "2", "--verdict.trials", "1", "--verdict.length", "0.02", "--verdict.pretraining", "0.02",
    "--verdict.matched_draws", "0", "--verdict.budget", "1d", "--verdict.methods", "mae,pixels",
    "--run.dir", "v", "--model.width", "16", "--model.depth", "1", "--model.heads", "2",
]  # fmt: skip


class Installed(NamedTuple):
    """An environment with the wheel, and an empty folder."""

    python: Path
    packages: Path
    folder: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command as a person types it in the folder."""
        environment = {
            k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PYTHONPATH")
        }
        environment |= {"OMP_NUM_THREADS": "1", "PATH": f"{self.python.parent}:{os.environ['PATH']}"}
        return subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600, check=False
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel of these sources, and beside it the libraries of this environment."""
    top = tmp_path_factory.mktemp("installed")
    sources, place, folder = top / "sources", top / "environment", top / "empty"
    sources.mkdir()
    folder.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, sources / name)
    code = "import setuptools.build_meta as backend; print(backend.build_wheel('wheels'))"
    subprocess.run([sys.executable, "-c", code], cwd=sources, check=True, capture_output=True)
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    (wheel,) = (sources / "wheels").glob("*.whl")
    pip = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel]
    subprocess.run(pip, check=True, capture_output=True)
    (packages,) = place.glob("lib/python*/site-packages")
    # A path in here, not a site directory: what it says of an editable ssl_vit is not read.
    libraries = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (packages / "libraries.pth").write_text("\n".join(libraries))
    return Installed(python, packages, folder)


@pytest.fixture(scope="module")
def pretrained(installed: Installed, small: list[str]) -> subprocess.CompletedProcess[str]:
    done = installed.run("ssl-vit", "mae", *small, "--fit.epochs", "1", "--run.dir", "a run")
    assert done.returncode == 0, done.stderr
    return done


def test_nothing_but_the_package_is_installed(installed: Installed) -> None:
    assert not any((installed.packages / name).exists() for name in ("recipes", "eval", "tests", "benchmarks"))
    for folder in ("recipes", "eval"):
        names = {path.name for path in (ROOT / folder).glob("*.py")}
        assert {path.name for path in (installed.packages / "ssl_vit" / folder).glob("*.py")} == names
    assert (installed.packages / "ssl_vit" / "py.typed").exists()
    (about,) = installed.packages.glob("ssl_vit-*.dist-info")
    done = installed.run("ssl-vit", "--version")
    assert metadata.PathDistribution(about).version == done.stdout.strip()
    done = installed.run("ssl-vit")
    assert done.returncode == 0, done.stderr
    assert done.stdout == installed.run(str(installed.python), "-m", "ssl_vit").stdout


def test_recipes_of_papers_come_with_it(installed: Installed) -> None:
    there = {path.name for path in (installed.packages / "ssl_vit" / "recipes" / "papers").iterdir()}
    assert there == {path.name for path in (ROOT / "recipes" / "papers").iterdir()}
    done = installed.run("ssl-vit", "mae", "--config", "mae_vitb16_1600", "--dry_run")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (ROOT / "tests" / "unit" / "papers" / "mae_vitb16_1600.txt").read_text(encoding="utf-8")


def test_digits_as_from_a_clone(pretrained, installed: Installed, small: list[str], launched, tmp_path: Path) -> None:
    """Bit for bit; and the commands that a run prints do what they say where the person is."""
    done = launched("recipes/mae.py", *small, "--fit.epochs", "1", "--run.dir", "r", cwd=tmp_path, launcher=True)
    assert done.returncode == 0, done.stderr
    for file in ("metrics.jsonl", "backbone/model.safetensors"):
        assert (installed.folder / "a run" / file).read_bytes() == (tmp_path / "r" / file).read_bytes()
    about = json.loads((installed.folder / "a run" / "environment.json").read_text())
    assert about["command"].startswith("ssl-vit mae --model.width 16")
    assert about["commit"] is None
    typed = [line.strip() for line in pretrained.stdout.splitlines() if line.startswith("  ssl-vit ")]
    assert [shlex.split(line)[1] for line in typed] == ["knn", "linear-probe", "finetune", "supervised"]
    assert "accelerate launch" not in pretrained.stdout
    done = installed.run(*shlex.split(typed[0]))
    assert done.returncode == 0, done.stderr
    assert "Result: a run/results/knn.json" in done.stdout
    done = installed.run("ssl-vit", "compare", "a run")
    assert done.returncode == 0, done.stderr
    assert "weighted k-NN" in done.stdout or "knn" in done.stdout
    for form in (["compare", "empty"], ["finetune"], ["predict"], ["verdict", "--verdict.methods", "x"], ["nothing"]):
        (installed.folder / "empty").mkdir(exist_ok=True)
        done = installed.run("ssl-vit", *form)
        assert done.returncode in (1, 2)
        assert (done.stderr.count("\n"), done.stderr[:7]) == (1, "error: ")
        assert ".py" not in done.stderr


def test_two_processes(installed: Installed, small: list[str]) -> None:
    done = installed.run("ssl-vit", "mae", *small, "--fit.epochs", "0.2", "--run.dir", "two", "--processes", "2")
    assert done.returncode == 0, done.stderr
    assert "32 = 2 process(es) x 16 per device" in done.stdout
    assert done.stdout.count("What it is worth on labelled images") == 1
    about = json.loads((installed.folder / "two" / "environment.json").read_text())
    assert about["hardware"]["processes"] == 2
    done = installed.run("ssl-vit", "mae", "--processes", "2", *small, "--data.path", "nowhere")
    assert done.returncode == 1
    assert "error: there is no file or folder nowhere" in done.stderr
    assert "Traceback" not in done.stderr
    assert all("error: " in line for line in done.stderr.splitlines())


def test_a_verdict_and_the_functions(installed: Installed, pretrained) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (installed.folder / "images" / name).mkdir(parents=True)
        for i in range(60):
            Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(
                installed.folder / "images" / name / f"{i:02d}.png"
            )
    done = installed.run("ssl-vit", "verdict", *VERDICT)
    assert done.returncode == 0, done.stderr
    assert "Report: v/report.html" in done.stdout
    page = (installed.folder / "v" / "report.html").read_text().replace("<wbr>", "")
    for name in ("verdict --data.path images", "mae --data.path", "supervised --seed", "finetune --seed", "knn --"):
        assert f"ssl-vit {name}" in page, name
    assert "recipes/" not in page
    sentence = done.stdout.strip().splitlines()
    words = dict(zip(VERDICT[::2], VERDICT[1::2], strict=True))
    options = {name[2:]: value for name, value in words.items() if name not in ("--data.path", "--run.dir")}
    code = f"""
import json, sys
import ssl_vit
assert "torch" not in sys.modules and "ssl_vit.face" not in sys.modules
if __name__ == "__main__":
    run = ssl_vit.pretrain(
        "mae", data="images", out="face", model={{"width": 16, "depth": 1, "heads": 2}}, **{{"fit.epochs": 1}}
    )
    knn = ssl_vit.evaluate(run)
    logistic = ssl_vit.evaluate("face", "logistic", data={{"path": "images"}}, labels=20)
    found = ssl_vit.embed(run, "images")
    loaded = ssl_vit.load_backbone(run)
    again = ssl_vit.embed(loaded, "images")
    import ssl_vit.verdict.work  # the room has the function's name
    judged = ssl_vit.verdict(data="images", out="v", **{options!r})
    refused = []
    for ask in (lambda: ssl_vit.pretrain("mea"), lambda: ssl_vit.evaluate(run, "linear"),
                lambda: ssl_vit.pretrain(fit={{"epoch": 1}}), lambda: ssl_vit.pretrain(fit={{"epochs": -1}})):
        try:
            ask()
        except ValueError as error:
            refused.append(str(error))
    told = {{
        "run": [str(run.path), str(run.backbone), run.metrics["step"]],
        "knn": [str(knn.path), knn.protocol, knn.metric, knn.value, knn.rows[0]["method"]],
        "logistic": [str(logistic.path), logistic.protocol, logistic.value],
        "shape": list(found.vectors.shape), "name": found.names[0], "unreadable": list(found.unreadable),
        "same": bool((found.vectors == again.vectors).all()), "size": loaded.size,
        "verdict": [str(judged.path), judged.sentence, str(judged.report)], "refused": refused,
    }}
    json.dump(told, open("told.json", "w"))
"""
    (installed.folder / "notebook.py").write_text(code)
    done = installed.run(str(installed.python), "notebook.py")
    assert done.returncode == 0, done.stderr
    told = json.loads((installed.folder / "told.json").read_text())
    assert told["run"][:2] == ["face", "face/backbone"]
    rows = json.loads((installed.folder / "face/results/knn.json").read_text())["rows"]
    headline = next(row for row in rows if row["headline"])
    assert told["knn"] == ["face/results/knn.json", "knn", "top1", headline["top1"], "MAE"]
    assert told["logistic"][0].startswith("face/results/logistic-20-labels-draw-0-on-")
    assert told["logistic"][1] == "logistic"
    assert (told["shape"], told["unreadable"], told["same"], told["size"]) == ([120, 16], [], True, 8)
    assert Path(told["name"]).name == "00.png"
    assert told["verdict"][0::2] == ["v", "v/report.html"]
    assert told["verdict"][1] in sentence
    assert [words.partition(";")[0] for words in told["refused"]] == [
        "there is no method mea", "there is no protocol linear",
        "unknown option --fit.epoch", "--fit.epochs -1 must be positive",
    ]  # fmt: skip
