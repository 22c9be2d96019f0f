"""Data sets of the Hugging Face Hub; tells a wrong name from a hub that cannot be reached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import datasets.config
import huggingface_hub
import huggingface_hub.constants
from datasets.exceptions import DatasetGenerationError
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

from ssl_vit.core.errors import UserError
from ssl_vit.data.sources.part import SPLITS
from ssl_vit.data.sources.remote import ENDINGS, RemoteFile, described

_SECONDS = 10.0


def load_hub(path: str, why_not_here: str) -> dict[str, datasets.Dataset]:
    """Every split of owner/name or owner/name:config on the hub, from the cache where it is there.

    A UserError says where the hub has no such data set, keeps it behind a login, or cannot be reached.
    """
    name, config = _known(path, why_not_here)
    try:
        found: Any = datasets.load_dataset(name, config)
        return dict(found)
    except Exception as error:  # also several configurations, or a script that is not run
        raise _refusal(path, why_not_here, error) from error


def streamed_files(path: str, why_not_here: str, cache_size: float | None) -> tuple[dict[str, list[RemoteFile]], str]:
    """The parquet or tar files of every split of owner/name, which are read where they are, and their ending.

    Which files they are is what ``datasets`` finds out without downloading any.

    Args:
        path: As for ``load_hub``.
        why_not_here: As for ``load_hub``.
        cache_size: Gigabytes of the local disk for what was read; None for the usual.

    Raises:
        UserError: As ``load_hub``, and where the files are of another kind.
    """
    name, config = _known(path, why_not_here)
    try:
        builder = datasets.load_dataset_builder(name, config)
    except Exception as error:
        raise _refusal(path, why_not_here, error) from error
    found: Any = builder.config.data_files or {}
    files = {str(split): [str(url) for url in urls] for split, urls in found.items()}
    endings = {Path(url).suffix for urls in files.values() for url in urls}
    if len(endings) != 1 or not endings <= set(ENDINGS):
        kinds = ", ".join(sorted(endings)) or "none"
        raise UserError(
            f"{path} on the Hugging Face Hub cannot be streamed: it has files of the kind {kinds}, and "
            f"{' and '.join(ENDINGS)} are read in place; leave out --data.stream"
        )
    splits: dict[str, list[RemoteFile]] = {}
    for split, urls in files.items():
        name = SPLITS.get(split.lower(), split)
        if name in splits:
            raise UserError(
                f"{path} on the Hugging Face Hub has two splits of one meaning among {', '.join(files)}; leave out "
                "--data.stream, download it, and rename one"
            )
        splits[name] = [described(url, cache_size) for url in urls]
    return splits, endings.pop()


def _known(path: str, why_not_here: str) -> tuple[str, str | None]:
    """Name and configuration of a data set that is there and may be read."""
    name, _, config = path.partition(":")
    try:
        ask_hub(lambda timeout: huggingface_hub.HfApi().dataset_info(name, timeout=timeout))
    except GatedRepoError as error:
        raise UserError(f"{path} on the Hugging Face Hub needs a login: hf auth login, then repeat") from error
    except RepositoryNotFoundError as error:
        raise UserError(f"{why_not_here}, and the Hugging Face Hub has no (public) data set of that name") from error
    return name, config or None


def _refusal(path: str, why_not_here: str, error: Exception) -> UserError:
    """What to say where ``datasets`` cannot open what the hub has; anything that it does not know is raised again."""
    known = (OSError, ValueError, RuntimeError, DatasetGenerationError)
    if not isinstance(error, known) and "http" not in type(error).__module__:
        raise error
    if isinstance(error, OSError) and datasets.config.HF_HUB_OFFLINE:
        return UserError(
            f"{why_not_here}; as a name on the Hugging Face Hub it is not in the cache, and the hub cannot be "
            "reached from here: check the path, or repeat the command once where there is a network"
        )
    return UserError(f"{path} on the Hugging Face Hub: {' '.join(str(error.__cause__ or error).split())}")


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
