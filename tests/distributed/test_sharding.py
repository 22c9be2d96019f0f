"""Every source over 2 processes x 2 loader workers: each sample exactly once, with its own pixels and label."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.data import order
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.sources.opening import open_labelled

IMAGES, TRAINED, STEPS, CUT = 120, 96, 12, 5
"""96 of 120 images are trained on, 16 in a step: two epochs, cut in the middle of the first."""
BUFFER = 20
SOURCES = {"tar": True, "parquet": True, "csv": False, "folder": False}


def png(value: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (4, 4), value).save(file, "PNG")
    return file.getvalue()


def build(root: Path) -> None:
    """The same images, grey level i of class i % 3, in every kind of source."""
    for kind in SOURCES:
        (root / kind).mkdir(parents=True)
    for shard in range(5):
        numbers = range(24 * shard, 24 * shard + 24)
        with tarfile.open(root / "tar" / f"{shard}.tar", "w") as tar:
            for i in numbers:
                for ending, data in (("png", png(i)), ("cls", b"%d" % (i % 3))):
                    info = tarfile.TarInfo(f"{i:04}.{ending}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        columns = {"image": [png(i) for i in numbers], "label": [i % 3 for i in numbers]}
        pyarrow.parquet.write_table(
            pyarrow.table(columns), root / "parquet" / f"part-{shard}.parquet", row_group_size=7
        )
    lines = ["image,label"]
    for i in range(IMAGES):
        (root / "folder" / str(i % 3)).mkdir(exist_ok=True)
        (root / "folder" / str(i % 3) / f"{i:04}.png").write_bytes(png(i))
        lines.append(f"../folder/{i % 3}/{i:04}.png,{i % 3}")
    (root / "csv" / "all.csv").write_text("\n".join(lines))


def visited(root: Path, kind: str, first: int) -> list[list[int]]:
    """[step, epoch, index, grey level, class] of every image of this process, from a step on."""
    data = DataConfig(path=str(root / kind), stream=SOURCES[kind])
    images = open_labelled(data, LabelledDataConfig()).train
    loader = Loader(images, batch_size=16, micro_batch=4, seed=3, device=torch.device("cpu"), cache="none", workers=2)
    assert (len(images), images.blocks is not None) == (TRAINED, SOURCES[kind])
    rows = []
    for number, batch in enumerate(loader.batches(first, STEPS)):
        assert batch.labels is not None
        step = first + number // loader.accumulation
        found = (batch.epoch, batch.index, batch.images[:, 0, 1, 2], batch.labels)
        rows += [[step, *map(int, row)] for row in zip(*found, strict=True)]
    return rows


def main(root: Path) -> None:
    torch.distributed.init_process_group("gloo")
    order.BUFFER = BUFFER
    found = {f"{kind} {first}": visited(root, kind, first) for kind in SOURCES for first in (0, CUT)}
    (root / f"rank{torch.distributed.get_rank()}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, launch) -> Path:
    root = tmp_path_factory.mktemp("sharding")
    build(root)
    done = launch(2, __file__, str(root), cwd=root)
    assert done.returncode == 0, done.stderr
    return root


def by_rank(root: Path, kind: str, first: int) -> list[list[list[int]]]:
    return [json.loads((root / f"rank{rank}.json").read_text())[f"{kind} {first}"] for rank in range(2)]


def together(parts: list[list[list[int]]]) -> list[list[int]]:
    """Micro-batches of all processes in their order: m = round x processes + rank."""
    chunks = [[part[i : i + 4] for i in range(0, len(part), 4)] for part in parts]
    return [row for turn in zip(*chunks, strict=True) for chunk in turn for row in chunk]


@pytest.mark.parametrize("kind", SOURCES)
def test_every_sample_exactly_once_in_every_epoch(root: Path, kind: str) -> None:
    parts = by_rank(root, kind, 0)
    assert len(parts[0]) == len(parts[1])
    for epoch in range(2):
        seen = [row[2] for part in parts for row in part if row[1] == epoch]
        assert sorted(seen) == list(range(TRAINED))
    assert together(parts)[:TRAINED] != together(parts)[TRAINED:]


@pytest.mark.parametrize("kind", SOURCES)
def test_pixels_and_labels_belong_to_their_index(root: Path, kind: str) -> None:
    pairs: dict[int, set[tuple[int, int]]] = {}
    for part in by_rank(root, kind, 0):
        for _, _, index, level, label in part:
            pairs.setdefault(index, set()).add((level, label))
    assert all(len(found) == 1 for found in pairs.values())
    values = [value for found in pairs.values() for value in found]
    assert len({level for level, _ in values}) == TRAINED
    assert all(label == level % 3 for level, label in values)


@pytest.mark.parametrize("kind", SOURCES)
def test_continued_in_the_middle_of_an_epoch(root: Path, kind: str) -> None:
    for whole, rest in zip(by_rank(root, kind, 0), by_rank(root, kind, CUT), strict=True):
        assert rest == [row for row in whole if row[0] >= CUT]


@pytest.mark.parametrize("kind", SOURCES)
def test_one_process_sees_the_same_order(root: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "BUFFER", BUFFER)
    alone: Any = visited(root, kind, 0)
    assert alone == together(by_rank(root, kind, 0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
