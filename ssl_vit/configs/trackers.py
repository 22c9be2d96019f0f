"""Trackers that a run may report to, and what each needs; looked at before anything is imported."""

from __future__ import annotations

import netrc
import os
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from ssl_vit.core.errors import UserError, did_you_mean

TRACKERS = ("tensorboard", "wandb", "trackio", "mlflow")
"""As ``--run.log_with`` names them: each is the name of its package, and of the extra that installs it."""


def trackers_in(log_with: str | None) -> tuple[str, ...]:
    """The trackers of ``--run.log_with``, each once.

    Args:
        log_with: Names with commas between.

    Raises:
        UserError: For a name that is none, a package that is not installed, or an account nobody has logged in to.
    """
    names = tuple(dict.fromkeys(name.strip() for name in (log_with or "").split(",") if name.strip()))
    for name in names:
        if name not in TRACKERS:
            raise UserError(f"--run.log_with {name}: trackers are {', '.join(TRACKERS)}{did_you_mean(name, TRACKERS)}")
        found = find_spec(name)
        if found is None or found.origin is None:  # a folder of that name, as some trackers leave, is no package
            raise UserError(f"--run.log_with {name}: the package is not installed; pip install 'ssl_vit[{name}]'")
    if "wandb" in names and not _logged_in_to_wandb():
        raise UserError(
            "--run.log_with wandb: nobody is logged in; wandb login, or WANDB_API_KEY, or WANDB_MODE=offline (and "
            "wandb sync later)"
        )
    return names


def _logged_in_to_wandb() -> bool:
    if os.environ.get("WANDB_MODE", "online") != "online":
        return True
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    for path in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        try:
            if path and netrc.netrc(Path(path).expanduser()).authenticators(host):
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False
