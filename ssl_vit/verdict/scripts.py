"""The scripts of the project as functions: a verdict's numbers are made by what a person would type."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from ssl_vit.core.errors import UserError

_ROOT = Path(__file__).resolve().parents[2]


@lru_cache(maxsize=8)
def main_of(script: str) -> Callable[[Any], None]:
    """A script's ``main``.

    Args:
        script: Path from the project's root, such as recipes/mae.py.

    Raises:
        UserError: Outside a clone of the project.
    """
    path = _ROOT / script
    spec = importlib.util.spec_from_file_location(f"ssl_vit_script_{path.stem}", path)
    if not path.exists() or spec is None or spec.loader is None:
        raise UserError(f"{path} does not exist; a verdict needs a clone of the project with recipes/ and eval/")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main
