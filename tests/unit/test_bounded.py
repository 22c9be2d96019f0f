"""Options, patterns, files of options and images that would take all time or memory are told before they do."""

from __future__ import annotations

import io
import os
import re
import struct
import tarfile
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonargparse
import numpy as np
import pytest
import tifffile
from PIL import Image, ImageFile
from ssl_vit.configs import DataConfig, FitConfig, LabelledDataConfig, ModelConfig, PoolConfig, SourceConfig, parse
from ssl_vit.configs.facts import check_ranges
from ssl_vit.core.bounded import within
from ssl_vit.core.errors import UserError
from ssl_vit.core.reading import check_yaml, json_lines, mapping_in, object_in, read_yaml
from ssl_vit.data.decoding import current, remarks
from ssl_vit.data.decoding.decode import decode, read_header
from ssl_vit.data.decoding.formats import MOST, Format, Unreadable
from ssl_vit.data.images import ImageSet, Sizes, measure
from ssl_vit.data.sources import folder
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.opening import open_images, open_pool
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.runs.identity import digest, identity

# Patterns


def test_a_pattern_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_MATCHING", 0.02)
    Image.new("L", (4, 4)).save(tmp_path / f"{'a' * 60}.png")
    with pytest.raises(UserError, match=r"--data\.group \(a\+\)\+\$ takes too long on 1 paths"):
        open_source(SourceConfig(path=str(tmp_path), group="(a+)+$"), labelled=False)
    for wrong in ("(" * 5000, "a{99999999999999}", "(a"):
        with pytest.raises(UserError, match="is not a regular expression"):
            open_source(SourceConfig(path=str(tmp_path), group=wrong), labelled=False)
    found = open_source(SourceConfig(path=str(tmp_path), group="(a+)"), labelled=False)
    assert found["all"].groups is not None


def test_only_the_main_thread_is_bounded_and_what_was_before_comes_back() -> None:
    import signal

    before = signal.getsignal(signal.SIGVTALRM)
    with within(100, "never"):
        assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] == 0
    assert signal.getsignal(signal.SIGVTALRM) == before
    done: list[bool] = []

    def elsewhere() -> None:
        with within(1e-9, "never"):
            done.append(True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert done


# Options


@pytest.mark.parametrize(
    ("config", "words"),
    [(MAERecipe(fit=FitConfig(epochs=float("inf"))), r"--fit\.epochs inf must be at most 1"),
     (MAERecipe(fit=FitConfig(epochs=1e300)), r"--fit\.epochs 1e\+300 must be at most 100000000"),
     (MAERecipe(fit=FitConfig(batch_size=10**12)), r"--fit\.batch_size 1e\+12 must be at most 4194304"),
     (MAERecipe(fit=FitConfig(batch_size=10**400)), r"--fit\.batch_size \(so many digits\) must be at most 4194304"),
     (MAERecipe(fit=FitConfig(checkpoint_minutes=float("inf"))), r"--fit\.checkpoint_minutes inf must be a number"),
     (MAERecipe(model=ModelConfig(depth=10**9)), r"--model\.depth 1000000000 must be at most 1000"),
     (MAERecipe(data=PoolConfig(workers=10**6)), r"--data\.workers 1000000 must be at most 1024")],
)  # fmt: skip
def test_numbers_without_an_end_are_refused(config: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check_ranges(config)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [(BOMB, "comes to more than 100,000 values"), ("a: &a [*a]", "refers to itself"),
     ("[" * 100_000, "has more than 64 groups"), ("a: " + "b" * 2**20, "is larger than 1,048,576 bytes")],
    ids=["laughs", "itself", "deep", "large"],
)  # fmt: skip
def test_files_of_options_stay_as_small_as_they_are(
    tmp_path: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        check_yaml(path)
    with pytest.raises(ValueError, match=words):
        read_yaml(path)
    with pytest.raises(SystemExit) as left:
        parse(MAERecipe, "", ["--config", str(path)])
    told = capsys.readouterr().err
    assert (left.value.code, told.count("\n")) == (2, 1)
    assert words in told


IN_A_LINE = "{" + BOMB.strip().replace("\n", ", ") + "}"
LONG = f"{{a: &a {'y' * 50_000}, b: [{'*a,' * 9000}]}}"


@pytest.mark.parametrize(
    ("text", "words"),
    [(IN_A_LINE, "comes to more than 100,000 values"), (LONG, "comes to more than 100,000 values"),
     ("{a: &a [*a]}", "refers to itself"), ("[" * 65 + "]" * 65, "has more than 64 groups")],
    ids=["laughs", "long", "itself", "deep"],
)  # fmt: skip
@pytest.mark.parametrize("option", ["--model.args", "--fit.epochs", "--data.path", "--config"])
def test_values_of_options_stay_as_small_as_they_are(
    option: str, text: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonargparse.ArgumentParser, "parse_args", lambda *_: pytest.fail("it was read"))
    with pytest.raises(SystemExit) as left:
        parse(MAERecipe, "", [option, text])
    told = capsys.readouterr().err
    assert (left.value.code, told.count("\n")) == (2, 1)
    assert f"error: {option} {words}" in told


@pytest.mark.parametrize("text", ["[*a]", "*a", "a*[b]", "{a: &a x", "a\0b", "[a, &b c]"])
def test_text_that_only_looks_like_references_stays_text(text: str) -> None:
    assert parse(MAERecipe, "", ["--data.group", text]).data.group == text


def test_a_long_value_is_shortened_where_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--fit.epochs", f"[{'x,' * 5000}]"], ["--fit.batch_size", "y" * 5000], ["--config", "z" * 200],
                  ["--config", "z" * 5000]):  # fmt: skip
        with pytest.raises(SystemExit):
            parse(MAERecipe, "", words)
        told = capsys.readouterr().err
        assert f"error: {words[0]}: " in told
        assert "..." in told
        assert f"{words[1][:110]}" not in told


def test_references_that_stay_small_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("fit: &fit {epochs: 3, batch_size: 8}\nother: *fit\nlist: [1, 2.5, null, 'x']\n")
    check_yaml(tmp_path / "a.yaml")
    fit = {"epochs": 3, "batch_size": 8}
    assert read_yaml(tmp_path / "a.yaml") == {"fit": fit, "other": fit, "list": [1, 2.5, None, "x"]}


@pytest.mark.parametrize(
    ("path", "words"),
    [("bytes.yaml", r"bytes\.yaml is not UTF-8 text \(byte 128\); name a YAML file"),
     ("pipe", r"--config: .*pipe is no file \(no regular file\); name"),
      ("/dev/zero", "--config: /dev/zero is no file"),
     (".", r"--config: \. is no file")],
)  # fmt: skip
def test_files_of_options_are_text(
    path: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bytes.yaml").write_bytes(bytes(range(256)))
    os.mkfifo("pipe")
    with pytest.raises(SystemExit):
        parse(MAERecipe, "", ["--config", path])
    told = capsys.readouterr().err
    assert re.search(words, told)
    assert told.count("\n") == 1


def test_pipes_are_no_files_of_a_run_or_a_network(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    assert object_in(tmp_path / "config.json") is None
    assert mapping_in(tmp_path / "config.json") is None
    assert json_lines(tmp_path / "config.json").whole == []


@pytest.mark.parametrize("name", ["pipe", "a.csv", "a.tar", "a.parquet", "folder/a.parquet", "folder/metadata.csv"])
@pytest.mark.parametrize("stream", [False, True])
def test_pipes_are_no_tables(name: str, stream: bool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / name)
    given = tmp_path / (name if "/" not in name else "folder")
    with pytest.raises(UserError, match=r"is neither a file nor a folder|is no regular file; give"):
        open_source(SourceConfig(path=str(given), stream=stream), labelled=False)


# Folders


def small(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4)).save(path)


def test_links_that_lead_back_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("pool/ape/0.png", "pool/bee/0.png", "beside/0.png"):
        small(tmp_path / name)
    pool = tmp_path / "pool"
    for at, to in (("l1", "."), ("l2", "."), ("ape/up", ".."), ("bee/out", "../.."), ("cow", "../beside")):
        (pool / at).symlink_to(to)
    found, _ = folder._image_files(pool)
    assert found == ["ape/0.png", "bee/0.png", "bee/out/beside/0.png", "cow/0.png"]  # another folder may be linked to
    assert f"note: {pool / 'l1'} leads back to a folder that it lies in, and is passed over" in capsys.readouterr().err


def test_links_that_multiply_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_VISITS", 9)
    read: list[str] = []
    usual = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: read.append(str(path)) or usual(path))
    for level in range(1, 30):
        (tmp_path / f"pool/d{level:02}").mkdir(parents=True)
        for link in "abc":
            (tmp_path / f"pool/d{level:02}/{link}").symlink_to(f"../d{level + 1:02}")
    small(tmp_path / "pool/d30/0.png")
    with pytest.raises(UserError, match=r"links in .*pool lead to .* more than 9 times; remove the needless ones"):
        open_source(SourceConfig(path=str(tmp_path / "pool")), labelled=False)
    assert len(read) < 9 * 31


# Images


def header_of_png(width: int, height: int) -> bytes:
    """A whole PNG of one bit per pixel, as far as its header tells; of its pixels there are few."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    about = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", about) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def tiff(shape: tuple[int, ...], **options: Any) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, np.zeros(shape, np.uint16), **options)
    return file.getvalue()


def test_a_small_file_of_a_huge_image_is_not_decoded() -> None:
    with pytest.raises(Unreadable, match=r"too large: 13,000 x 13,000 pixels, above --data\.max_pixels 134217728"):
        decode(header_of_png(13_000, 13_000), Format(3, 8), (32, 32))
    with pytest.raises(Unreadable, match="too large"):
        decode(header_of_png(20_000, 20_000), Format(3, 8), (32, 32), 1 << 34)  # Pillow's own limit


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP", "PPM", "TIFF", "JPEG2000", "AVIF"])
def test_pixels_are_counted_before_they_are_decoded(kind: str) -> None:
    raw = encoded(Image.new("RGB", (40, 30)), kind)
    assert decode(raw, Format(3, 8), None, 1200)[1] == (30, 40)
    with pytest.raises(Unreadable, match=r"too large: 40 x 30 pixels, above --data\.max_pixels 1199"):
        decode(raw, Format(3, 8), None, 1199)


@pytest.mark.parametrize(
    ("shape", "options", "channels", "counted"),
    [((3, 20, 30), {"photometric": "minisblack"}, 3, 1800), ((20, 30, 5), {"planarconfig": "contig"}, 5, 3000),
     ((20, 30, 3), {"photometric": "rgb"}, 3, 600), ((20, 30), {}, 1, 600)],
)  # fmt: skip
def test_pages_of_a_tiff_are_counted(
    shape: tuple[int, ...], options: dict[str, Any], channels: int, counted: int
) -> None:
    raw = tiff(shape, **options)
    assert decode(raw, Format(channels, 16), None, counted)[0].shape == (channels, 20, 30)
    with pytest.raises(Unreadable, match=r"above --data\.max_pixels"):
        decode(raw, Format(channels, 16), None, counted - 1)


def test_the_budget_comes_from_the_options_and_changes_no_name_of_a_run(tmp_path: Path) -> None:
    for i in range(3):
        Image.new("RGB", (20, 20)).save(tmp_path / f"{i}.png")
    path = str(tmp_path)
    assert open_images(DataConfig(path=path)).most == MOST
    images, _ = open_pool(PoolConfig(path=path, max_pixels=399), LabelledDataConfig())
    with pytest.raises(Unreadable, match=r"max_pixels 399"):
        images.read(0)
    plain, other = ({"data": {"path": path} | more} for more in ({"max_pixels": None}, {"max_pixels": 399}))
    without = digest(identity({"data": {"path": path}}, MAERecipe))
    assert digest(identity(plain, MAERecipe)) == without != digest(identity(other, MAERecipe))


def test_a_rotation_is_found_without_decoding() -> None:
    picture = Image.new("1", (13_000, 12_000))
    exif = picture.getexif()
    exif[0x0112] = 6
    raw = encoded(picture, "PNG", exif=exif.tobytes(), compress_level=1)
    place = raw.index(b"eXIf") - 4
    end = place + 12 + struct.unpack(">I", raw[place : place + 4])[0]
    late = raw[:place] + raw[end:-12] + raw[place:end] + raw[-12:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageFile.ImageFile, "load", lambda _: pytest.fail("it was decoded"))
        for one in (raw, late):
            assert read_header(one)[2:] == (13_000, 12_000)
            with pytest.raises(Unreadable, match=r"above --data\.max_pixels 134217728"):
                decode(one, Format(1, 8), (32, 32))


SPARSE = 60 * 10**9
"""Bytes of a file, none of which is on the disk."""


def sparse_folder(folder: Path) -> Path:
    Image.new("RGB", (20, 20)).save(folder / "a.png")
    (folder / "b.png").touch()
    os.truncate(folder / "b.png", SPARSE)
    return folder


def sparse_table(folder: Path) -> Path:
    sparse_folder(folder)
    (folder / "table.csv").write_text("image\na.png\nb.png\n")
    return folder / "table.csv"


def sparse_tar(folder: Path) -> Path:
    sparse_folder(folder)
    (folder / "tar").mkdir()
    shard = folder / "tar" / "0.tar"
    with tarfile.open(shard, "w") as tar:
        tar.add(folder / "a.png", "a.png")
        start, header = tar.offset, tar.gettarinfo(folder / "b.png", "b.png").tobuf()
    with shard.open("r+b") as file:
        file.seek(start)
        file.write(header)
        file.truncate(start + len(header) + -(-SPARSE // 512) * 512 + 1024)
    return folder / "tar"


@pytest.mark.parametrize("made", [sparse_folder, sparse_table, sparse_tar])
def test_a_file_that_takes_all_memory_is_not_read(made: Callable[[Path], Path], tmp_path: Path) -> None:
    place = made(tmp_path)
    images, _ = open_pool(PoolConfig(path=str(place)), LabelledDataConfig())
    assert len(images) == 2
    assert images.read(0)[1] == (20, 20)
    with pytest.raises(Unreadable, match=r"too large: 60,000,000,000 bytes, above the 2,147,483,648 that --data.max_p"):
        images.read(1)
    more, _ = open_pool(PoolConfig(path=str(place), max_pixels=10**9), LabelledDataConfig())
    with pytest.raises(Unreadable, match=r"above the 16,000,000,000 that"):
        more.read(1)


class Memory:
    """Rows that are what they are given."""

    def __init__(self, raws: list[Any]) -> None:
        self.raws = raws

    def __len__(self) -> int:
        return len(self.raws)

    def raw(self, row: int) -> Any:
        return self.raws[row]

    def where(self, row: int) -> str:
        return f"image {row}"


def test_an_image_with_other_channels_counts_as_unreadable() -> None:
    plain = encoded(Image.new("RGB", (4, 4)), "PNG")
    rows = Memory([plain] * 20 + [tiff((4, 4, 5), planarconfig="contig")])
    form, sizes = measure(rows, "memory")
    assert form == Format(3, 8)
    images = ImageSet("memory", rows, np.arange(21), form, sizes, "", canvas=(4, 4))
    assert images.read(0)[0].shape == (3, 4, 4)
    with pytest.raises(Unreadable):
        images.read(20)
    # One in ten is more than a flipped bit, and so are two of twenty.
    for few in (Memory([plain] * 9 + rows.raws[-1:]), Memory([plain] * 20 + 2 * rows.raws[-1:])):
        with pytest.raises(UserError, match="different numbers of channels"):
            measure(few, "memory")


def test_a_flipped_header_of_a_tiff_does_not_stop_a_run() -> None:
    """Every bit of one file's header: the set stays what it is, or the image is named."""
    whole = tiff((6, 6))
    for place in range(8 * 8, 8 * min(len(whole), 200), 3):
        raw = bytearray(whole)
        raw[place // 8] ^= 1 << place % 8
        rows = Memory([whole] * 20 + [bytes(raw)])
        form, _ = measure(rows, "memory")
        assert form in (Format(1, 16), Format(3, 16)), place  # the flipped one may call itself colour
        images = ImageSet("memory", rows, np.arange(21), form, Sizes(None, 6), "", canvas=(6, 6))
        try:
            images.read(20)
        except Unreadable as error:
            assert str(error)


def test_pipes_and_devices_are_no_images(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    os.mkfifo(tmp_path / "b.png")
    os.mkfifo(tmp_path / "c")  # looked at, because it has no ending
    (tmp_path / "d.png").symlink_to("/dev/zero")
    images = open_images(DataConfig(path=str(tmp_path)))
    assert len(images) == 3
    for i in (1, 2):
        with pytest.raises(Unreadable, match="no regular file"):
            images.read(i)


# What libraries say


def test_lines_of_libtiff_get_the_name_of_the_file(capfd: pytest.CaptureFixture[str]) -> None:
    current.begin(lambda i: f"image {i}", 7)
    remarks._told.clear()
    for _ in range(2):
        with remarks.told_of(is_tiff=True):
            os.write(2, b"TIFFReadDirectory: Warning, Unknown field with tag 1.\nanother thread\n")
    told = capfd.readouterr().err.splitlines()
    assert sorted(told) == [
        "another thread", "another thread", "warning: image 7: TIFFReadDirectory: Warning, Unknown field with tag 1.",
    ]  # fmt: skip
    with pytest.raises(Unreadable, match=r"^no; LZWDecode: Not enough data$"), remarks.told_of(is_tiff=True):
        os.write(2, b"LZWDecode: Not enough data\n")
        raise Unreadable("no")
    with remarks.told_of(is_tiff=False):
        os.write(2, b"TIFFOpen: elsewhere\n")
    assert capfd.readouterr().err == "TIFFOpen: elsewhere\n"


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits"])
def test_nothing_of_a_damaged_tiff_goes_to_the_screen_by_itself(
    compression: str, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    whole = encoded(
        Image.fromarray(rng.integers(256, size=(16, 16, 3), dtype=np.uint8)), "TIFF", compression=compression
    )
    remarks._told.clear()
    for place in range(8, len(whole), 7):
        raw = bytearray(whole)
        raw[place] ^= 0x55
        current.begin(lambda i: f"image {i}", place)
        try:
            decode(bytes(raw), Format(3, 8), None)
        except Unreadable as error:
            assert "\n" not in str(error)
    for line in capfd.readouterr().err.splitlines():
        assert line.startswith("warning: image "), line
