"""ssl-vit doctor as a person types it: right and wrong inputs, the table and the page."""

from __future__ import annotations

import base64
import io
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from made_scripts import InProcess

QUICK = ["--doctor.seconds", "0"]


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Tiles of eight patients, one of them broken."""
    draw = np.random.default_rng(0)
    for patient in range(8):
        for tile in range(6):
            folder = tmp_path / "scans" / ("good" if patient % 2 else "crack")
            folder.mkdir(parents=True, exist_ok=True)
            pixels = draw.integers(0, 256, (24, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"patient{patient}_x{tile:02d}.png")
    (tmp_path / "scans" / "good" / "patient7_x99.png").write_bytes(b"broken")
    return tmp_path / "scans"


@pytest.mark.parametrize("method", ["mae", "dino"])
def test_a_folder_is_looked_at(method: str, scans: Path, script: InProcess) -> None:
    status, out, err = script("eval/doctor.py", "scans", "--out", "d.html", "--doctor.method", method, *QUICK)
    assert (status, err) == (0, "")
    told = dict(re.findall(r"^(\S[\w ]{0,14}\S) {2,}(\S.*)$", out, re.MULTILINE))
    assert told["number"].startswith("49; ")
    assert told["unreadable"].startswith("1: scans/good/patient7_x99.png (not an image that Pillow can read)")
    assert told["classes"] == "2 classes: good 25, crack 24"
    assert "--data.group" in out
    command, *more = told["command"].partition(" --data.path scans")
    assert command.endswith(f"recipes/{method}.py")
    assert more[1].split() == [word for option in re.findall(r"; use (--\S+ \S+)", " ".join(out.split()))
                               for word in option.split()]  # fmt: skip
    assert told["time"].startswith("about ")
    assert out.rstrip().endswith("Page: d.html")
    page = Path("d.html").read_text()
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)
    *_, seen, rest = re.findall(r"data:image/png;base64,([\w+/=]+)", page)  # what the network will see
    assert rest
    with Image.open(io.BytesIO(base64.b64decode(seen))) as sheet:
        assert np.asarray(sheet)[40, [40, 98, 140], 3].tolist() == [255, 0, 255]  # nothing between pictures
    rule = re.search(r"\.gallery img \{(.*?)\}", page)
    assert rule is not None
    assert "background" not in rule[1]  # so that the page's own ground shows there, by day and by night


def test_the_last_line_repeats_the_options(scans: Path, script: InProcess) -> None:
    scans.rename("my scans")
    given = ["my scans", "--data.group", r"(patient\d)_", "--doctor.seconds", "0.0"]
    status, out, _ = script("eval/doctor.py", *given)
    assert status == 0
    command = out.splitlines()[-1].partition(" With pictures: ")[2]
    assert shlex.split(command.partition("eval/doctor.py ")[2]) == [*given, "--out", "doctor.html"]


def test_what_training_refuses_is_told_and_the_page_is_written(scans: Path, script: InProcess) -> None:
    (scans / "good" / "patient7_x99.png").unlink()
    five = np.zeros((24, 24, 5), dtype=np.uint8)
    for n in range(6):  # one would count as a damaged file
        tifffile.imwrite(scans / "good" / f"odd{n}.tif", five, photometric="minisblack", planarconfig="contig")
    status, out, _ = script("eval/doctor.py", "scans", "--out", "d.html", *QUICK)
    assert status == 0
    assert "which training refuses" in " ".join(out.split())
    assert "training stops: the images of scans have different numbers of channels" in " ".join(out.split())
    assert "on which training stops" in Path("d.html").read_text()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["scanz"], "error: there is no file or folder scanz; did you mean scans?"),
        (["scans", "--out", "page.pdf"], "error: --out page.pdf must end in .html"),
        (["scans", "--doctor.method", "mea"], "error: there is no method mea; methods are mae"),
        (["scans", "--doctor.metod", "mae"], "error: unknown option --doctor.metod; did you mean --doctor.method"),
    ],
)
def test_mistakes_are_one_line(words: list[str], expected: str, scans: Path, script: InProcess) -> None:
    status, out, err = script("eval/doctor.py", *words)
    assert status in (1, 2)
    assert out == ""
    assert err.startswith(expected)
    assert len(err.splitlines()) == 1
