"""Where the trained network lies that an option names; needs no torch, so that a wrong path is told at once."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.files import sha256

FILES = ("config.json", "model.safetensors")
"""What timm saves of a network."""


@contextmanager
def told_as(option: str) -> Generator[None, None, None]:
    """Within it, what is wrong with ``--backbone`` is told of another option that names a network."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error).replace("--backbone", option)) from error


def network_folder(given: str) -> Path:
    """The folder that holds a network: RUN/backbone for RUN and for itself, and any folder that timm saved.

    Args:
        given: ``--backbone``.

    Raises:
        UserError: Where there is none.
    """
    if not given.strip():
        raise UserError("--backbone is missing; give RUN, the folder of a pre-training run, or RUN/backbone in it")
    place = Path(given).expanduser()
    if not place.exists():
        runs = [p.parent.name for p in place.parent.glob("*/backbone")]
        close = did_you_mean(place.name, runs)
        raise UserError(f"--backbone {given} does not exist; give RUN, the folder of a pre-training run{close}")
    for folder in (place / "backbone", place):
        if all((folder / file).is_file() for file in FILES):
            return folder
    if (place / "config.yaml").exists():
        raise UserError(f"--backbone {given} holds no network: the run there has not finished; start it again")
    runs = sorted(p.parent.name for p in place.glob("*/backbone")) if place.is_dir() else []
    named = f"; it holds the runs {', '.join(runs[:5])}: name one of them" if runs else ""
    raise UserError(f"--backbone {given} is no exported network: it holds no {' and '.join(FILES)}{named}")


def weights_hash(folder: Path) -> str:
    """What results call the weights of an exported folder: 16 digits of the hash of model.safetensors."""
    return sha256(folder / "model.safetensors")[:16]


def classifier_folder(given: str) -> Path:
    """The folder that holds a classifier: RUN/classifier for RUN and for itself.

    A pre-training run stands for its fine-tuning, where there is one.

    Args:
        given: ``--classifier``.

    Raises:
        UserError: Where there is none, or several.
    """
    if not given.strip():
        raise UserError("--classifier is missing; give RUN, a run of eval/finetune.py or recipes/supervised.py")
    place = Path(given).expanduser()
    if not place.exists():
        runs = [p.parent.name for p in place.parent.glob("*/classifier")]
        close = did_you_mean(place.name, runs)
        raise UserError(
            f"--classifier {given} does not exist; give a run of eval/finetune.py or recipes/supervised.py{close}"
        )
    run = place.parent if place.name == "backbone" else place
    for folder in (run / "classifier", place):
        if answers(folder):
            return folder
    tuned = sorted(folder for folder in run.glob("finetune/*/classifier") if answers(folder))
    if len(tuned) == 1:
        return tuned[0]
    if tuned:
        named = " or ".join(f"--classifier {folder.parent}" for folder in tuned[:5])
        raise UserError(f"--classifier {given} was fine-tuned {len(tuned)} times; name one: {named}")
    if (run / "backbone").is_dir() and not (run / "results" / "supervised.json").exists():
        raise UserError(f"--classifier {given} holds no classifier yet; eval/finetune.py --backbone {run} makes one")
    raise UserError(
        f"--classifier {given} holds no classifier; give a finished run of eval/finetune.py or "
        "recipes/supervised.py with a linear head (--supervised.head_hidden 0)"
    )


def answers(folder: Path) -> bool:
    """Whether a folder holds an exported classifier."""
    try:
        return "classifier" in json.loads((folder / "config.json").read_text(encoding="utf-8"))["ssl_vit"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
