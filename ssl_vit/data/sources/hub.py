"""Data sets of the Hugging Face Hub; tells a wrong name from a hub that cannot be reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import datasets
import datasets.config
import huggingface_hub
import huggingface_hub.constants
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

from ssl_vit.core.errors import UserError

_SECONDS = 10.0


def load_hub(path: str, why_not_here: str) -> dict[str, datasets.Dataset]:
    """Every split of owner/name or owner/name:config on the hub, from the cache where it is there.

    A UserError says where the hub has no such data set, keeps it behind a login, or cannot be reached.
    """
    name, _, config = path.partition(":")
    try:
        ask_hub(lambda timeout: huggingface_hub.HfApi().dataset_info(name, timeout=timeout))
    except GatedRepoError as error:
        raise UserError(f"{path} on the Hugging Face Hub needs a login: hf auth login, then repeat") from error
    except RepositoryNotFoundError as error:
        raise UserError(f"{why_not_here}, and the Hugging Face Hub has no (public) data set of that name") from error
    try:
        found: Any = datasets.load_dataset(name, config or None)
        return dict(found)
    except (OSError, ValueError, RuntimeError) as error:  # also several configurations, or a script that is not run
        if isinstance(error, OSError) and datasets.config.HF_HUB_OFFLINE:
            raise UserError(
                f"{why_not_here}; as a name on the Hugging Face Hub it is not in the cache, and the hub cannot be "
                "reached from here: check the path, or repeat the command once where there is a network"
            ) from error
        raise UserError(f"{path} on the Hugging Face Hub: {' '.join(str(error).split())}") from error


def ask_hub(question: Callable[[float], object]) -> None:
    """One short question, so that a machine without network does not wait through a minute of repetitions.

    It gets the number of seconds to wait, and may raise GatedRepoError and RepositoryNotFoundError. Where the hub does
    not answer, only its cache is looked into from here on.
    """
    try:
        question(_SECONDS)
    except (GatedRepoError, RepositoryNotFoundError):
        raise
    except Exception as error:
        # Whatever the http library of this version of the hub's client raises; anything else is a bug.
        known = (OfflineModeIsEnabled, HfHubHTTPError, OSError, ValueError)
        if not isinstance(error, known) and "http" not in type(error).__module__:
            raise
        datasets.config.HF_HUB_OFFLINE = True
        huggingface_hub.constants.HF_HUB_OFFLINE = True
