"""Where the trained network lies that an option names; needs no torch, so that a wrong path is told at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.files import sha256
from ssl_vit.core.reading import loads

FILES = ("config.json", "model.safetensors")
"""What timm saves of a network."""
RELEASED = "released"
"""Below runs/: weights from elsewhere as folders that timm loads, with their results."""
ENDINGS = (".pth", ".pt", ".bin", ".safetensors")
"""Of files of weights."""
_OF_FOLDERS = ("model.safetensors", "pytorch_model.bin")
"""Files of which config.json beside them tells what they are."""
_NAMED = re.compile(r"[a-z0-9_]+\.(?!(pth|bin|safetensors)$)[a-z0-9_]+")
"""How timm writes names of weights: model and tag, of which pt is one."""
_SIZED = re.compile(r"(.+)@(\d{1,4})")


class Place(NamedTuple):
    """Where a network lies, and in which layout."""

    kind: Literal["timm folder", "file", "transformers", "timm name"]
    path: Path
    size: int | None
    """Side of the input in pixels, where it was asked for behind the name."""

    @property
    def name(self) -> str:
        """timm's, of weights that it knows; else empty."""
        return self.path.name if self.kind == "timm name" else ""


def find_network(given: str, option: str = "--backbone") -> Place:
    """What an option names: RUN, a folder, a file of weights or a name of timm's, each perhaps with @PIXELS behind it.

    Args:
        given: As typed.
        option: Which option.

    Raises:
        UserError: Where there is none. Whether timm knows a name, and what a file holds, is not looked at.
    """
    sized = None if Path(given).expanduser().exists() else _SIZED.fullmatch(given)
    name, size = (sized[1], int(sized[2])) if sized else (given, None)
    if size == 0:
        raise UserError(f"{option} {given}: behind @ stands the side of the input in pixels, 1 or more")
    place = Path(name).expanduser()
    if place.is_file():
        if place.suffix not in ENDINGS:
            raise UserError(
                f"{option} {given} is no exported network and no file of weights ({' '.join(ENDINGS)}); give RUN"
            )
        if place.name not in _OF_FOLDERS or not (place.parent / "config.json").is_file():
            return Place("file", place, size)
        place, name = place.parent, str(place.parent)
    if name.strip() and _of_transformers(place):
        return Place("transformers", place, size)
    if _NAMED.fullmatch(name) and not place.exists():
        return Place("timm name", place, size)
    return Place("timm folder", network_folder(name, option), size)


def _of_transformers(folder: Path) -> bool:
    try:
        config = loads((folder / "config.json").read_text(encoding="utf-8"))
        return "model_type" in config and "architecture" not in config
    except (OSError, ValueError, TypeError):
        return False


def network_folder(given: str, option: str = "--backbone") -> Path:
    """The folder that holds a network: RUN/backbone for RUN and for itself, and any folder that timm saved.

    Args:
        given: As typed.
        option: Which option.

    Raises:
        UserError: Where there is none.
    """
    if not given.strip():
        raise UserError(f"{option} is missing; give RUN, the folder of a pre-training run, or RUN/backbone in it")
    place = Path(given).expanduser()
    if not place.exists():
        close = runs_near(place, "backbone")
        tagged = "; timm's weights are named with their tag, as vit_small_patch14_dinov2.lvd142m"
        close = close or (tagged if re.fullmatch(r"[a-z]\w*[0-9_]\w*", given) else "")
        raise UserError(f"{option} {given} does not exist; give RUN, the folder of a pre-training run{close}")
    for folder in (place / "backbone", place):
        if all((folder / file).is_file() for file in FILES):
            return folder
    if (place / "config.yaml").exists():
        raise UserError(f"{option} {given} holds no network: the run there has not finished; start it again")
    if (place / "config.json").is_file() and (place / "pytorch_model.bin").is_file():
        raise UserError(
            f"{option} {given} holds config.json, but its weights are in pytorch_model.bin: have timm save them with "
            "save_for_hf(model, FOLDER, safe_serialization=True)"
        )
    raise UserError(
        f"{option} {given} is no exported network: it holds no {' and '.join(FILES)}; give RUN, the folder of a "
        f"pre-training run{runs_near(place, 'backbone')}"
    )


def runs_near(place: Path, product: str = "environment.json") -> str:
    """Which runs may be meant by a place that is none, as the end of a sentence; empty where none is near.

    Args:
        place: As typed, perhaps not there.
        product: What a run that is meant holds.
    """
    if inside := sorted(path.parent.name for path in place.glob(f"*/{product}")):
        return f"; it holds the runs {', '.join(inside[:5])}: name one of them"
    if around := next((folder for folder in place.parents if (folder / "environment.json").exists()), None):
        return f"; it lies in the run {around}: name that"
    rooms = dict.fromkeys((Path("runs"), place.parent))
    named = {path.parent.name: str(path.parent) for room in rooms for path in room.glob(f"*/{product}")}
    return did_you_mean(place.name, named, typed=named)


def weights_hash(folder: Path) -> str:
    """What results call the weights of an exported folder: 16 digits of the hash of model.safetensors."""
    return sha256(folder / "model.safetensors")[:16]


def classifier_folder(given: str, option: str = "--classifier") -> Path:
    """The folder that holds a classifier: RUN/classifier for RUN and for itself.

    A pre-training run stands for its fine-tuning, where there is one.

    Args:
        given: As typed.
        option: Which option.

    Raises:
        UserError: Where there is none, or several.
    """
    if not given.strip():
        raise UserError(f"{option} is missing; give RUN, a run of eval/finetune.py or recipes/supervised.py")
    place = Path(given).expanduser()
    if not place.exists():
        raise UserError(
            f"{option} {given} does not exist; give a run of eval/finetune.py or recipes/supervised.py"
            f"{runs_near(place)}"
        )
    run = place.parent if place.name == "backbone" else place
    for folder in (run / "classifier", place):
        if answers(folder):
            return folder
    tuned = sorted(folder for folder in run.glob("finetune/*/classifier") if answers(folder))
    if len(tuned) == 1:
        return tuned[0]
    if tuned:
        named = " or ".join(f"{option} {folder.parent}" for folder in tuned[:5])
        raise UserError(f"{option} {given} was fine-tuned {len(tuned)} times; name one: {named}")
    if (run / "backbone").is_dir() and not (run / "results" / "supervised.json").exists():
        raise UserError(f"{option} {given} holds no classifier yet; eval/finetune.py --backbone {run} makes one")
    raise UserError(
        f"{option} {given} holds no classifier; give a finished run of eval/finetune.py or "
        "recipes/supervised.py with a linear head (--supervised.head_hidden 0)"
    )


def answers(folder: Path) -> bool:
    """Whether a folder holds an exported classifier."""
    try:
        return "classifier" in loads((folder / "config.json").read_text(encoding="utf-8"))["ssl_vit"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
