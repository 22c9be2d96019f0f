"""Before pre-training: whether images that will be judged on are in the pool, told from rows and names alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ssl_vit.configs import LabelledDataConfig, PoolConfig
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import say_once
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.folder import FileRows
from ssl_vit.data.sources.opening import open_labelled, open_pool, same_source
from ssl_vit.data.sources.part import JoinedRows


def check_pool(pool: ImageSet, data: PoolConfig, judged_on: LabelledDataConfig) -> None:
    """Stops, or warns, where a pool holds test images (the same rows of one split, or files) and this was not declared.

    Labelled images that cannot be opened are no reason to stop.

    Raises:
        UserError: With ``--data.on_leak stop``.
    """
    test = _judged(data, judged_on)
    shared = 0 if test is None else test.shared_with(pool) or len(_files(test) & _files(pool))
    if test is None or not shared:
        if data.transductive:
            say_once("note: --data.transductive: no image that would be judged on is known to be in the pool")
        return
    if data.transductive:
        say_once(f"note: pre-training on {shared:,} of the {len(test):,} test images, as declared (transductive)")
        return
    message = (
        f"the pool {data.path} holds {shared:,} of the {len(test):,} images of {test.name} that will be judged on; "
        "leave them out (--data.split), declare that this is meant with --data.transductive true"
    )
    if data.on_leak == "stop":
        raise UserError(message + ", or go on with --data.on_leak warn")
    say_once(f"warning: {message}")


def _judged(data: PoolConfig, judged_on: LabelledDataConfig) -> ImageSet | None:
    """The images that will be judged on; None where there are none, or where the pool cannot hold them anyway."""
    if judged_on.path is None or same_source(judged_on.path, data.path):
        # Unless splits are named, the pool is what is left beside the test split.
        if not data.transductive and not any((data.split, data.test_split, judged_on.split, judged_on.test_split)):
            return None
    elif judged_on.path != "digits" and not Path(judged_on.path).expanduser().exists():
        return None  # on the hub: pre-training needs no network for what comes later
    try:
        return open_labelled(data, judged_on).test
    except UserError:
        return None


def _files(images: ImageSet) -> set[str]:
    """Whole paths of a set's image files; empty where it is read from other things."""
    parts = images.rows.parts if isinstance(images.rows, JoinedRows) else (images.rows,)
    if not all(isinstance(rows, FileRows) for rows in parts):
        return set()
    return {os.path.realpath(images.where(i)) for i in range(len(images))}


def seen_in_pre_training(about: dict[str, Any], test: ImageSet) -> int | None:
    """How many test images were in the pool that a backbone, of which ``about`` is the record, was pre-trained on.

    Returns:
        Their number; None where the pool was another source, or has changed since.
    """
    try:
        pool = open_pool(PoolConfig(**about["data"]), LabelledDataConfig(**about["eval_data"]))[0]
    except (KeyError, UserError):
        return None
    return test.shared_with(pool) if pool.fingerprint == about.get("pool_fingerprint") else None
