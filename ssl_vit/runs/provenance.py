"""Where a number was made: versions, commit, command and hardware."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from ssl_vit import __version__
from ssl_vit.core.processor import this_processor
from ssl_vit.core.started import ROOT, by_command

_PACKAGES = (
    "torch", "timm", "accelerate", "datasets", "scikit-learn", "numpy", "scipy", "statsmodels", "pillow", "jinja2",
    "jsonargparse", "matplotlib", "safetensors", "torchvision", "simplejpeg",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Versions of Python, this project and what it stands on."""
    found = {"python": platform.python_version(), "ssl_vit": __version__}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def commit() -> str | None:
    """The commit of the checkout this code runs from, with ``+changes`` where it was edited; None outside one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD")
        return head + ("+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def hardware() -> dict[str, Any]:
    """Processor with its family, model and stepping, cores and system.

    A name alone does not say what a processor can: hosts in a cloud hide it, and speed differs between models.
    """
    name = this_processor().name or platform.processor() or platform.machine()
    return {"cpu": name, "cores": os.cpu_count(), "system": platform.platform()}


def command() -> str:
    """How this process was called: with ``ssl-vit``, or as one types it in a clone of the project."""
    if by_command():
        return shlex.join(["ssl-vit", *sys.argv[1:]])
    script = Path(sys.argv[0]).absolute()
    name = script.relative_to(ROOT) if script.is_relative_to(ROOT) else sys.argv[0]
    return shlex.join([str(name), *sys.argv[1:]])
