"""Odd and broken files through every kind of source: each is read or named, and all sources agree."""

from __future__ import annotations

import io
import random
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image
from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.data.decoding.decode import Unreadable
from ssl_vit.data.sources.opening import open_pool

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
BENCHMARK: dict[str, Any] = runpy.run_module("odd_files")

KINDS = ["folder", "csv", "jsonl", "parquet", "parquet stream", "arrow", "tar", "tar stream", "Dataset"]
NAMED = {
    "bomb.png": "too large",
    "cut.jpg": "truncated",
    "cut.png": "truncated",
    "empty.jpg": "empty file",
    "float.tif": "32-bit float",
    "garbage.png": "not an image",
    "header.jpg": "not an image",
    "page.jpg": "not an image",
}
READ = {
    "PNG inside.jpg": (3, 24, 20, 8),
    "animated.gif": (3, 24, 20, 8),
    "bilevel.png": (1, 24, 20, 8),
    "cmyk.jpg": (3, 24, 20, 8),
    "deep.png": (1, 24, 20, 16),
    "deep.tif": (1, 24, 20, 16),
    "dot.1.webp": (3, 24, 20, 8),
    "grey alpha.png": (1, 24, 20, 8),
    "junk after.jpg": (3, 24, 20, 8),
    "no_suffix": (3, 24, 20, 8),
    "palette.png": (3, 24, 20, 8),
    'sub dir/deep/é,"x".JPEG': (3, 24, 20, 8),
    "tiny.png": (3, 1, 1, 8),
    "transparent.png": (3, 24, 20, 8),
    "turned.jpg": (3, 20, 24, 8),
    "wide.png": (3, 3, 2000, 8),
}


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def odd_files() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    colour = Image.fromarray(rng.integers(0, 256, (24, 20, 3), dtype=np.uint8))
    deep = Image.fromarray(rng.integers(0, 65536, (24, 20), dtype=np.uint16))
    jpeg, plain = encoded(colour, "JPEG"), encoded(colour, "PNG")
    exif = Image.Exif()
    exif[0x0112] = 6
    return {
        "bomb.png": encoded(Image.new("1", (20000, 10000)), "PNG"),
        "cut.jpg": jpeg[: len(jpeg) * 3 // 4],
        "cut.png": plain[: len(plain) // 2],
        "empty.jpg": b"",
        "float.tif": encoded(Image.new("F", (20, 24), 0.5), "TIFF"),
        "garbage.png": random.Random(0).randbytes(3000),
        "header.jpg": jpeg[:15],
        "page.jpg": b"<html>404</html>",
        "PNG inside.jpg": plain,
        "animated.gif": encoded(colour, "GIF", save_all=True, append_images=[Image.new("RGB", (20, 24))]),
        "bilevel.png": encoded(colour.convert("1"), "PNG"),
        "cmyk.jpg": encoded(colour.convert("CMYK"), "JPEG"),
        "deep.png": encoded(deep, "PNG"),
        "deep.tif": encoded(deep, "TIFF"),
        "dot.1.webp": encoded(colour, "WEBP"),
        "grey alpha.png": encoded(colour.convert("LA"), "PNG"),
        "junk after.jpg": jpeg + bytes(2000),
        "no_suffix": jpeg,
        "palette.png": encoded(colour.convert("P"), "PNG"),
        'sub dir/deep/é,"x".JPEG': jpeg,
        "tiny.png": encoded(Image.new("RGB", (1, 1)), "PNG"),
        "transparent.png": encoded(colour.convert("RGBA"), "PNG"),
        "turned.jpg": encoded(colour, "JPEG", exif=exif),
        "wide.png": encoded(Image.new("RGB", (2000, 3)), "PNG"),
    }


JUNK = {".DS_Store": b"x", "._tiny.png": b"\0\5\26\7", "Thumbs.db": b"x", "notes.txt": b"x", "sub dir/.x/a.png": b""}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Names of the files in order, and every source."""
    root = tmp_path_factory.mktemp("odd")
    for name, data in (odd_files() | JUNK).items():
        (root / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "files" / name).write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", root / "hf-cache")
        names = BENCHMARK["paths_of"](root / "files")
        yield names, BENCHMARK["write_sources"](root / "files", names, root / "sources")


def test_every_file_is_found_and_no_junk(opened: tuple[list[str], dict[str, Any]]) -> None:
    names, sources = opened
    assert sorted(names) == sorted([*NAMED, *READ])
    assert list(sources) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_is_read_or_named(kind: str, opened: tuple[list[str], dict[str, Any]]) -> None:
    names, sources = opened
    found = dict(zip(names, BENCHMARK["outcomes"](sources[kind], {}), strict=True))
    for name, reason in NAMED.items():
        assert found[name].startswith("named: "), name
        assert reason in found[name], name
    for name, (channels, height, width, bits) in READ.items():
        assert found[name] == f"ok: {width} x {height}, {channels} channel(s), {bits} bits", name


@pytest.mark.parametrize("kind", KINDS)
def test_pools_agree_on_format_pixels_and_reasons(kind: str, opened: tuple[list[str], dict[str, Any]]) -> None:
    names, sources = opened
    pools = []
    for source in (sources["folder"], sources[kind]):
        data = DataConfig(path=source.path, stream=source.stream)
        pools.append(open_pool(data, LabelledDataConfig(path="digits"), source.dataset)[0].on_canvas(16, 16))
    assert pools[0].form == pools[1].form
    assert pools[0].sizes == pools[1].sizes
    for i, name in enumerate(names):
        results: list[Any] = []
        for pool in pools:
            try:
                pixels, size = pool.read(i)
                results.append((pixels.tobytes(), size))
            except Unreadable as error:
                assert pool.where(i)
                results.append(str(error))
        assert results[0] == results[1], name
        assert isinstance(results[0], str) == (name in NAMED), name


def test_the_report_names_every_file_and_no_place(opened: tuple[list[str], dict[str, Any]], tmp_path: Path) -> None:
    names, sources = opened
    text = BENCHMARK["report"](Path(sources["folder"].path))
    for name in names:
        assert f"| {name} | " in text
    assert str(tmp_path.parent) not in text
    for junk in JUNK:
        assert junk in text.rpartition("Passed over")[2]
