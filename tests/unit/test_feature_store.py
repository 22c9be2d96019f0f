"""Kept features: used where everything is as it was, computed again where anything is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.loading.loader import Batch
from ssl_vit.evaluation import store as module
from ssl_vit.evaluation.features import Features
from ssl_vit.evaluation.store import kept_features, network_hash
from ssl_vit.models.build import make_backbone
from torch import Tensor

CPU, NETWORK = torch.device("cpu"), {"network": "a", "size": 4}
PIXELS = np.random.default_rng(0).integers(0, 256, (40, 1, 4, 4)).astype(np.uint8)


def images(pixels: np.ndarray = PIXELS, source: str = "s") -> ImageSet:
    rows, ids = ArrayRows(pixels, "a"), np.arange(len(pixels))
    return ImageSet("a", rows, ids, Format(1, 8), Sizes((4, 4), 4), source, labels=ids % 2, classes=("x", "y"))


class Counting:
    """The pixels themselves, times a weight."""

    def __init__(self, weight: float = 1.0) -> None:
        self.weight, self.seen = weight, 0

    def __call__(self, batch: Batch) -> Tensor:
        self.seen += len(batch.images)
        return self.weight * batch.images.flatten(1).float()


def ask(folder: Path | None, extract: Counting, of: ImageSet, identity: dict[str, Any] = NETWORK) -> Features:
    return kept_features(folder, extract, identity, of, writes=True, batch_size=8, device=CPU)


def test_everything_is_computed_once_and_draws_are_found_in_it(tmp_path: Path) -> None:
    whole, extract = images(), Counting()
    first = ask(tmp_path, extract, whole)
    assert extract.seen == 40
    again = ask(tmp_path, extract, whole)
    assert extract.seen == 40 + 16  # the sample
    assert np.array_equal(again.x, first.x)
    assert again.x.dtype == np.float32
    draw = whole.subset(np.array([30, 3, 17]))
    found = ask(tmp_path, extract, draw)
    assert extract.seen == 40 + 16 + 3
    assert np.array_equal(found.x, first.x[[30, 3, 17]])
    assert found.labels.tolist() == [0, 1, 1]
    assert found.index.tolist() == [0, 1, 2]


def test_vectors_of_tf32_are_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extract = Counting()
    for rounded, seen in ((False, 40), (True, 80), (True, 96), (False, 112)):  # 16 are computed again to compare
        monkeypatch.setattr(module, "rounds_to_tf32", lambda rounded=rounded: rounded)
        ask(tmp_path, extract, images())
        assert extract.seen == seen
    assert len(list(tmp_path.iterdir())) == 2


def test_draws_add_up(tmp_path: Path) -> None:
    whole, extract = images(), Counting()
    parts = np.arange(20), np.arange(15, 40)
    for part in parts:
        ask(tmp_path, extract, whole.subset(part))
    seen = extract.seen
    assert np.array_equal(ask(tmp_path, extract, whole).x, PIXELS.reshape(40, 16))
    assert extract.seen == seen + 16
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("change", ["network", "size", "source", "view"])
def test_other_weights_images_or_views_are_computed(change: str, tmp_path: Path) -> None:
    ask(tmp_path, Counting(), images())
    of = images(source="t") if change == "source" else images()
    of = replace(of, canvas=(4, 4)) if change == "view" else of
    identity = NETWORK | ({change: "other"} if change in NETWORK else {})
    extract = Counting()
    ask(tmp_path, extract, of, identity)
    assert extract.seen == 40
    assert len(list(tmp_path.iterdir())) == 2


def test_pixels_changed_in_place_are_noticed(tmp_path: Path) -> None:
    ask(tmp_path, Counting(), images())
    darker = PIXELS // 2
    assert np.array_equal(ask(tmp_path, Counting(), images(darker)).x, darker.reshape(40, 16))
    extract = Counting()  # and nothing of before has stayed
    assert np.array_equal(ask(tmp_path, extract, images(darker).subset(np.arange(5))).x, darker[:5].reshape(5, 16))
    assert extract.seen == 5


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_damaged_files_are_computed_again(damage: str, tmp_path: Path) -> None:
    ask(tmp_path, Counting(), images())
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[-3] ^= 255
    made = {"cut": content[:-100], "flipped": content, "empty": b"", "other": b"\x08" + bytes(20)}[damage]
    path.write_bytes(bytes(made))
    extract = Counting()
    assert np.array_equal(ask(tmp_path, extract, images()).x, PIXELS.reshape(40, 16))
    assert extract.seen == 40
    ask(tmp_path, extract, images())
    assert extract.seen == 56


def test_other_versions_are_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(tmp_path, Counting(), images())
    monkeypatch.setattr(module, "versions", lambda: {"pillow": "0"})
    extract = Counting()
    ask(tmp_path, extract, images())
    assert extract.seen == 40
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_is_kept_where_it_cannot_or_shall_not_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for folder in (None, blocked / "features"):
        extract = Counting()
        for _ in range(2):
            assert np.array_equal(ask(folder, extract, images()).x, PIXELS.reshape(40, 16))
        assert extract.seen == 80
    kept_features(tmp_path / "other", Counting(), NETWORK, images(), writes=False, batch_size=8, device=CPU)
    assert not (tmp_path / "other").exists()
    monkeypatch.setattr(module, "LARGEST", 40 * 16 * 4 - 1)
    ask(tmp_path / "small", Counting(), images())
    assert not (tmp_path / "small").exists()


def test_unreadable_images_are_met_every_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Hole(ArrayRows):
        def raw(self, row: int) -> np.ndarray:
            if row == 7:
                raise OSError("gone")
            return super().raw(row)

    of = replace(images(), rows=Hole(PIXELS, "a"))
    for _ in range(2):
        found = ask(tmp_path, Counting(), of)
        assert len(found.x) == 39
        assert len(found.left_out) == 1
        assert "row 7 cannot be read" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_networks_are_told_apart_by_structure_and_weights() -> None:
    def hashed(seed: int, name: str = "resnet10t") -> str:
        torch.manual_seed(seed)
        return network_hash(make_backbone(name, {}, img_size=32))

    assert hashed(0) == hashed(0)
    assert hashed(0) != hashed(1)
    backbone = make_backbone("resnet10t", {}, img_size=32)
    before = network_hash(backbone)
    with torch.no_grad():
        next(backbone.parameters()).view(-1)[0] += 1e-3
    assert network_hash(backbone) != before
