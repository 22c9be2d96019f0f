"""Processes that do not see the same images are told so, all alike, before anything is computed."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.sources import everywhere
from ssl_vit.data.sources.everywhere import same_everywhere


def images(count: int, source: str = "files") -> ImageSet:
    rows = ArrayRows(np.zeros((count, 1, 4, 4), dtype=np.uint8), "photos")
    return ImageSet("photos", rows, np.arange(count), Format(1, 8), Sizes((4, 4), 4), source)


def told_by(monkeypatch: pytest.MonkeyPatch, host: str, *sets: ImageSet) -> str:
    """What a process on this host tells the others."""
    told: list[str] = []

    def gather(own: list[str]) -> list[str]:
        told.extend(own)
        return own

    job(monkeypatch, host, gather)
    same_everywhere(*sets)
    return told[0]


def job(monkeypatch: pytest.MonkeyPatch, host: str, gather: Callable[[list[str]], list[str]], world: int = 2) -> None:
    monkeypatch.setattr(everywhere, "rank_and_world", lambda: (0, world))
    monkeypatch.setattr(everywhere.socket, "gethostname", lambda: host)
    monkeypatch.setattr(everywhere, "gather_lists", gather)


def test_the_same_images_everywhere_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    other = told_by(monkeypatch, "node-2", images(1200), images(3))
    job(monkeypatch, "node-1", lambda own: [*own, other])
    same_everywhere(images(1200), images(3))


@pytest.mark.parametrize(
    "there", [(images(1199), images(3)), (images(1200, "others"), images(3)), (images(1200), images(3, "others"))]
)
def test_others_are_refused_in_the_same_words_on_all(
    there: tuple[ImageSet, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = images(1200), images(3)
    all_told = [told_by(monkeypatch, f"node-{n}", *(there if n == 3 else here)) for n in (1, 2, 2, 3)]
    said: set[str] = set()
    for host, own in (("node-1", here), ("node-3", there)):
        job(monkeypatch, host, lambda _: all_told)
        with pytest.raises(UserError) as caught:
            same_everywhere(*own)
        said.add(str(caught.value))
    one, other = (
        f"{len(a):,} + {len(b):,} images (fingerprint {a.fingerprint} + {b.fingerprint})" for a, b in (here, there)
    )
    assert said == {
        f"the processes of this job see different images in photos: {one} on node-1, node-2; {other} on node-3; copy "
        "the same files to every node, or give one path that all nodes share"
    }


def test_not_every_node_of_many_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [json.dumps(["9 images", f"node-{n}"]) for n in range(64)]
    job(monkeypatch, "node-64", lambda own: [*own, *told])
    with pytest.raises(UserError, match=r"on node-64; 9 images on node-0, node-1, node-2, node-3 and 60 more; copy"):
        same_everywhere(images(8))


def test_one_process_asks_nobody_and_hashes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("nobody to ask")

    monkeypatch.setattr(everywhere, "gather_lists", never)
    monkeypatch.setattr(ImageSet, "fingerprint", property(never))
    same_everywhere(images(8))
