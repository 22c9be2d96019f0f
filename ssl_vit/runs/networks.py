"""Where the trained network lies that an option names; needs no torch, so that a wrong path is told at once."""

from __future__ import annotations

from pathlib import Path

from ssl_vit.core.errors import UserError, did_you_mean

FILES = ("config.json", "model.safetensors")
"""What timm saves of a network."""


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
