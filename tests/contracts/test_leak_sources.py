"""Test images are recognised in a pool, whatever kind of source either is."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image
from ssl_vit.configs import LabelledDataConfig, PoolConfig
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.opening import open_labelled, open_pool
from ssl_vit.leaks.guard import guard_pool

POOL, JUDGED = range(24), range(12, 42)
KINDS = ["folder", "csv", "jsonl", "parquet", "streamed parquet", "tar", "saved"]


def pixels(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (10, 10), dtype=np.uint8)


def png(n: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels(n)).save(file, "PNG")
    return file.getvalue()


def write(kind: str, place: Path, numbers: range) -> str:
    """A source of some images of two classes."""
    place.mkdir()
    names, labels = [f"{n}.png" for n in numbers], [n % 2 for n in numbers]
    if kind in ("folder", "csv", "jsonl"):
        for n, name in zip(numbers, names, strict=True):
            file = place / ("ab"[n % 2] if kind == "folder" else "") / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(png(n))
        if kind == "folder":
            return str(place)
        table = datasets.Dataset.from_dict({"file": names, "label": labels})
        table.to_csv(place / "t.csv") if kind == "csv" else table.to_json(place / "t.jsonl")
        return str(place / f"t.{kind}")
    if kind == "tar":
        with tarfile.open(place / "a.tar", "w") as tar:
            for n, label in zip(numbers, labels, strict=True):
                for name, content in ((f"{n}.png", png(n)), (f"{n}.cls", str(label).encode())):
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        return str(place / "a.tar")
    cells = [{"bytes": png(n), "path": None} for n in numbers]
    table = datasets.Dataset.from_dict({"image": cells, "label": labels}).cast_column("image", datasets.Image())
    if kind == "saved":
        table.save_to_disk(place / "set")
        return str(place / "set")
    table.to_parquet(place / "t.parquet")
    return str(place / "t.parquet")


def numbers(images: ImageSet) -> set[int]:
    known = {pixels(n).tobytes(): n for n in {*POOL, *JUDGED}}
    return {known[images.read(i)[0].tobytes()] for i in range(len(images))}


@pytest.mark.parametrize("judged", KINDS)
@pytest.mark.parametrize("pool", KINDS)
def test_every_pair_of_kinds(pool: str, judged: str, tmp_path: Path) -> None:
    data = PoolConfig(path=write(pool, tmp_path / "pool", POOL), stream=True if "stream" in pool else None, workers=0)
    judged_on = LabelledDataConfig(
        path=write(judged, tmp_path / "judged", JUDGED), stream=True if "stream" in judged else None
    )
    test = numbers(open_labelled(data, judged_on).test)
    assert test & set(POOL)
    found = guard_pool(open_pool(data, judged_on)[0], data, judged_on)
    assert numbers(found.images) == set(POOL) - test
    assert found.omission is not None
    assert {one.how for one in found.omission.images} == {"the same bytes"}


@pytest.mark.parametrize("judged", ["csv", "jsonl"])
def test_a_table_that_names_files_of_the_pool(judged: str, tmp_path: Path) -> None:
    path = write(judged, tmp_path / "pool", POOL)
    data, judged_on = PoolConfig(path=str(tmp_path / "pool"), workers=0), LabelledDataConfig(path=path)
    test = numbers(open_labelled(data, judged_on).test)
    found = guard_pool(open_pool(data, judged_on)[0], data, judged_on)
    assert numbers(found.images) == set(POOL) - test
    assert found.omission is not None
    assert {one.how for one in found.omission.images} == {"the same file"}
