"""Tar shards: what is found in them, what labels say, and what a cut or broken shard loses."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from ssl_vit.configs import SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.decode import Unreadable
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.part import Part


def picture(value: int, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("L", (4, 4), value).save(file, form)
    return file.getvalue()


def pack(path: Path, members: list[tuple[str, bytes]], mode: Any = "w", form: int = tarfile.PAX_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode, format=form) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def samples(n: int, first: int = 0) -> list[tuple[str, bytes]]:
    """Images of grey level i with label i % 3."""
    found = []
    for i in range(first, first + n):
        found += [(f"{i:05}.png", picture(i)), (f"{i:05}.cls", str(i % 3).encode())]
    return found


def opened(path: Path, labelled: bool = True, **options: Any) -> dict[str, Part]:
    return open_source(SourceConfig(path=str(path), **options), labelled=labelled)


def keys(part: Part) -> list[str]:
    return [part.rows.where(i).rpartition(" ")[2] for i in range(len(part.rows))]


def labels(part: Part) -> list[str]:
    assert part.labels is not None
    return [part.classes[k] for k in part.labels]


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(UserError) as raised:
        opened(path, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_samples_are_images_with_their_labels(tmp_path: Path) -> None:
    part = opened(pack(tmp_path / "a.tar", samples(7)))["all"]
    assert keys(part) == [f"{i:05}" for i in range(7)]
    assert [part.rows.raw(i) for i in range(7)] == [picture(i) for i in range(7)]
    assert labels(part) == ["0", "1", "2", "0", "1", "2", "0"]
    assert str(tmp_path / "a.tar") in part.rows.where(0)
    assert opened(tmp_path / "a.tar", labelled=False)["all"].labels is None


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_in_every_tar_dialect(tmp_path: Path, form: int) -> None:
    name = "/".join(["x" * 60, "é" * 20, "0"])
    part = opened(pack(tmp_path / "a.tar", [(f"{name}.png", picture(1)), (f"./{name}.x.png", picture(2))], form=form))
    assert [part["all"].rows.raw(i) for i in range(2)] == [picture(1), picture(2)]


def test_folders_in_names_keep_samples_apart(tmp_path: Path) -> None:
    names = ["cat/0.png", "cat/1.jpg", "dog/0.JPEG", "dog/v1.5/0.png", "._cat/0.png"]
    members = [(name, picture(i, "PNG" if "png" in name else "JPEG")) for i, name in enumerate(names)]
    part = opened(pack(tmp_path / "a.tar", [("cat/._0.png", b"Mac OS"), *members]))["all"]
    assert keys(part) == ["cat/0", "cat/1", "dog/0", "dog/v1.5/0", "._cat/0"]
    assert [part.rows.raw(i) for i in range(5)] == [data for _, data in members]
    grouped = opened(tmp_path / "a.tar", group=r"(cat|dog)")["all"].groups
    assert grouped is not None
    assert grouped.tolist() == [0, 0, 1, 1, 0]


def test_a_name_twice_is_two_samples(tmp_path: Path) -> None:
    part = opened(pack(tmp_path / "a.tar", [("0.png", picture(1)), ("0.png", picture(2)), ("0.PNG", picture(3))]))
    assert [part["all"].rows.raw(i) for i in range(3)] == [picture(1), picture(2), picture(3)]


@pytest.mark.parametrize("named", [0, 68], ids=["GNU tar", "with the size of what it names"])
def test_hard_links_are_images_and_other_links_are_counted(
    named: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.tar"
    (tmp_path / "outside.png").write_bytes(picture(9))
    links = [
        ("1.png", tarfile.LNKTYPE, "0.png"),
        ("2.png", tarfile.LNKTYPE, "./1.png"),
        ("3.png", tarfile.LNKTYPE, "later.png"),
        ("4.png", tarfile.LNKTYPE, str(tmp_path / "outside.png")),
        ("5.png", tarfile.SYMTYPE, "0.png"),
    ]
    with tarfile.open(path, "w") as tar:
        for name, kind, target in (("./0.png", tarfile.REGTYPE, ""), *links, ("later.png", tarfile.REGTYPE, "")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname, data = kind, target, picture(ord(name.strip("./")[0]))
            info.size = len(data) if kind == tarfile.REGTYPE else named * (kind == tarfile.LNKTYPE)
            tar.addfile(info, io.BytesIO(data) if kind == tarfile.REGTYPE else None)
    part = opened(path, labelled=False)["all"]
    assert keys(part) == ["./0", "1", "2", "later"]
    assert [part.rows.raw(i) for i in range(4)] == [*[picture(ord("0"))] * 3, picture(ord("l"))]
    assert capsys.readouterr().err == (
        f"note: 3 name(s) in {path} are links and are passed over; tar -h packs what they name\n"
    )


@pytest.mark.parametrize(
    ("values", "kind", "classes"),
    [
        (["7", "10", "7\n"], "class", ("7", "10")),
        (["cat", "dog ", "cat"], "class", ("cat", "dog")),
        (["0.5", "2", "1e-3"], "regression", ("cls",)),
        (["12345678901234567890123", "2", "2"], "class", ("12345678901234567890123", "2")),
    ],
)
def test_what_cls_files_say(tmp_path: Path, values: list[str], kind: str, classes: tuple[str, ...]) -> None:
    members = [m for i, v in enumerate(values) for m in ((f"{i}.png", picture(i)), (f"{i}.cls", v.encode()))]
    part = opened(pack(tmp_path / "a.tar", members))["all"]
    assert (part.kind, part.classes) == (kind, classes)
    if kind == "class":
        assert labels(part) == [v.strip() for v in values]


def test_fields_of_json_files(tmp_path: Path) -> None:
    about: list[dict[str, Any]] = [{"label": 3, "site": "a"}, {"site": 1, "label": 5}, {"label": 3, "box": [1, "x"]}]
    members = [m for i, a in enumerate(about) for m in ((f"{i}.jpg", b"\xff"), (f"{i}.json", json.dumps(a).encode()))]
    path = pack(tmp_path / "a.tar", members)
    assert labels(opened(path)["all"]) == ["3", "5", "3"]
    sites = opened(path, label_column="site")["all"]  # numbers and text in turn are text, a lacking field is none
    assert sites.labels is not None
    assert (sites.classes, sites.labels.tolist()) == (("1", "a"), [1, 0, -1])
    assert "did you mean site" in refusal(path, label_column="sites")
    for wrong in (b"{", b"[" * 100_000):
        pack(path, [*members, ("9.jpg", b"\xff"), ("9.json", wrong)])
        assert "sample 9 is not valid JSON" in refusal(path)


def test_the_label_and_the_json_file_contradict_each_other(tmp_path: Path) -> None:
    members = []
    for i, (cls, label) in enumerate([("0", 1), ("1", 0), ("0", 0)]):
        members += [(f"{i}.png", b""), (f"{i}.cls", cls.encode()), (f"{i}.json", json.dumps({"label": label}).encode())]
    assert "contradict" in refusal(pack(tmp_path / "a.tar", members))
    assert labels(opened(tmp_path / "a.tar", label_column="cls")["all"]) == ["0", "1", "0"]


def test_a_sample_without_a_label_is_in_the_pool(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.tar", [*samples(3), ("x.png", picture(9))])
    found = opened(path)["all"].labels
    assert found is not None
    assert found.tolist() == [0, 1, 2, -1]
    assert len(opened(path, labelled=False)["all"].rows) == 4
    bare = pack(tmp_path / "b.tar", [("0.png", picture(0)), ("1.png", picture(1))])
    assert opened(bare)["all"].labels is None


def test_shards_of_several_splits(tmp_path: Path) -> None:
    pack(tmp_path / "pets-train-0000.tar", samples(3))
    pack(tmp_path / "pets-train-0001.tar", samples(3, 3))
    pack(tmp_path / "pets-test-0000.tar", samples(2, 50))
    pack(tmp_path / "._pets-train-0000.tar", [])
    parts = opened(tmp_path, stream=True)
    assert keys(parts["train"]) == [f"{i:05}" for i in range(6)]
    assert keys(parts["test"]) == ["00050", "00051"]
    assert labels(parts["test"]) == ["2", "0"]
    assert parts["train"].blocks is not None
    assert parts["train"].blocks.tolist() == [0, 0, 0, 1, 1, 1]
    assert opened(tmp_path)["train"].blocks is None
    pack(tmp_path / "more.tar", samples(1))
    assert "more.tar" in refusal(tmp_path)


def test_unlabelled_shards_beside_labelled_ones(tmp_path: Path) -> None:
    pack(tmp_path / "train.tar", samples(3))
    pack(tmp_path / "val.tar", [("0.png", picture(0))])
    pack(tmp_path / "test.tar", samples(3, 50))
    parts = opened(tmp_path)
    assert (parts["val"].labels is None, labels(parts["train"])) == (True, ["0", "1", "2"])
    assert "split val" in refusal(tmp_path, test_split="val")


def test_several_images_per_sample(tmp_path: Path) -> None:
    members = [m for i in range(3) for m in ((f"{i}.dna.png", picture(i)), (f"{i}.rna.png", picture(10 + i)))]
    path = pack(tmp_path / "a.tar", [*members, ("3.dna.png", picture(3))])
    assert "dna.png, rna.png" in refusal(path)
    assert opened(path, image_column="rna.png")["all"].rows.raw(2) == picture(12)
    both = opened(path, image_column="rna.png,.dna.PNG")["all"].rows
    assert both.raw(1) == (picture(11), picture(1))
    with pytest.raises(Unreadable, match=r"rna\.png"):
        both.raw(3)
    assert "endings there: dna.png, rna.png" in refusal(path, image_column="jpg")


def test_samples_without_an_image_are_passed_over_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = pack(tmp_path / "a.tar", [("README.md", b"x"), *samples(3), ("classes.txt", b"a b c")])
    assert labels(opened(path)["all"]) == ["0", "1", "2"]
    said = capsys.readouterr().err
    assert "2 samples" in said
    assert "README (md)" in said


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_compressed_shards_are_refused(tmp_path: Path, mode: str) -> None:
    text = refusal(pack(tmp_path / "a.tar", samples(3), mode))
    assert "a.tar" in text
    assert "unpack" in text


@pytest.mark.parametrize("data", [b"", b"\x89PNG and so on", bytes(100), bytes(10240), b"x" * 2000])
def test_files_that_are_no_tar_are_refused_by_name(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(data)
    assert str(tmp_path) in refusal(tmp_path / "a.tar")


def test_shards_without_images_are_refused(tmp_path: Path) -> None:
    text = refusal(pack(tmp_path / "a.tar", [("0.txt", b"a"), ("0.npy", b"b")]))
    assert "no images" in text
    assert "npy, txt" in text


WHOLE = 4  # samples before the last one, of 2 x (512 header + 512 data) bytes each
SIZE = 2048


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize(
    ("kept", "left"),
    [
        (WHOLE * SIZE, WHOLE),  # before the last sample
        (WHOLE * SIZE + 1, WHOLE),  # in the header of its image
        (WHOLE * SIZE + 300, WHOLE),
        (WHOLE * SIZE + 512, WHOLE),  # before its data
        (WHOLE * SIZE + 530, WHOLE),  # in its data
        (WHOLE * SIZE + 1000, WHOLE),  # in the padding after it
        (WHOLE * SIZE + 1024, WHOLE),  # between image and label
        (WHOLE * SIZE + 1200, WHOLE),  # in the header of the label
        (WHOLE * SIZE + 1536, WHOLE),  # before the label's one byte
        (WHOLE * SIZE + 1537, WHOLE + 1),  # after it, in the padding
        (WHOLE * SIZE + 2048, WHOLE + 1),  # before the end mark
        (WHOLE * SIZE + 2100, WHOLE + 1),  # in it
        (3 * SIZE + 700, 3),
        (SIZE + 100, 1),
    ],
)
def test_a_shard_cut_off_keeps_its_whole_samples(
    tmp_path: Path, kept: int, left: int, form: int, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = pack(tmp_path / "b.tar", samples(WHOLE + 1), form=form)
    pack(tmp_path / "a.tar", samples(3, 10))
    pack(tmp_path / "c.tar", samples(3, 20))
    cut.write_bytes(cut.read_bytes()[:kept])
    part = opened(tmp_path)["all"]
    assert keys(part) == [f"{i:05}" for i in (10, 11, 12, *range(left), 20, 21, 22)]
    assert labels(part) == [str(int(key) % 3) for key in keys(part)]
    assert [part.rows.raw(i) for i in range(len(part.rows))] == [picture(int(key)) for key in keys(part)]
    said = capsys.readouterr().err
    assert said.count("warning") == 1
    assert f"{cut} is cut off; its {left} whole samples" in said


@pytest.mark.parametrize("kept", [*range(0, 2 * SIZE, 173), 11, 512, 1024])
def test_a_cut_anywhere_is_said_and_never_crashes(
    tmp_path: Path, kept: int, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "y" * 150  # in the PAX dialect such a name has headers of its own
    path = pack(tmp_path / "a.tar", [(f"{long}{name}", data) for name, data in samples(3)])
    path.write_bytes(path.read_bytes()[:kept])
    try:
        part = opened(path)["all"]
    except UserError as error:
        assert str(tmp_path) in str(error)
        return
    assert "cut off" in capsys.readouterr().err
    assert [part.rows.raw(i) for i in range(len(part.rows))] == [picture(i) for i in range(len(part.rows))]
    assert labels(part) == [str(i) for i in range(len(part.rows))]


def test_a_damaged_header_in_the_middle_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = pack(tmp_path / "a.tar", samples(5))
    data = bytearray(path.read_bytes())
    data[3 * SIZE + 100 : 3 * SIZE + 200] = b"?" * 100
    path.write_bytes(data)
    assert keys(opened(path)["all"]) == ["00000", "00001", "00002"]
    assert str(path) in capsys.readouterr().err


def test_fingerprints_follow_names_and_sizes(tmp_path: Path) -> None:
    prints = {opened(pack(tmp_path / "a.tar", samples(n)))["all"].fingerprint for n in (3, 4, 3)}
    assert len(prints) == 2
    prints.add(opened(pack(tmp_path / "a.tar", samples(3, 1)))["all"].fingerprint)
    assert len(prints) == 3
