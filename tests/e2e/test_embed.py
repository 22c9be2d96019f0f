"""eval/embed.py and eval/atlas.py on a trained run."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import timm
import torch
from PIL import Image

from made_scripts import ROOT


def grey(folder: str, count: int = 12, classes: bool = False) -> Path:
    rng = np.random.default_rng(1)
    for i in range(count):
        path = Path(folder) / (f"{'ab'[i % 2]}/{i:02d}.png" if classes else f"{i:02d}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    return Path(folder)


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def test_three_formats_say_the_same_with_labels_and_without(backbone: str, script) -> None:
    for folder, labelled in (("sorted", True), ("flat", False)):
        grey(folder, classes=labelled)
        for given, out in ((backbone, "f.parquet"), (f"{backbone}/backbone", "f.csv"), (f"{backbone}/", "f.npz")):
            status, said, err = script("eval/embed.py", "--backbone", given, "--data.path", folder, "--out", out)
            assert (status, err) == (0, "")
            words = "all of them labelled (2 classes)" if labelled else "without labels"
            assert said == f"{out}: 12 images from {folder}, {words}; 16 numbers each\n"
        table = pyarrow.parquet.read_table("f.parquet")
        assert table.column_names == (["path", "label", "vector"] if labelled else ["path", "vector"])
        vectors = np.stack(table["vector"].to_numpy())
        assert vectors.dtype == np.float32
        rows, arrays = rows_of("f.csv"), np.load("f.npz")
        assert (arrays["vector"] == vectors).all()
        again = np.array([[row[f"v{i}"] for i in range(16)] for row in rows]).astype(np.float32)
        assert (again == vectors).all()
        names = table["path"].to_pylist()
        assert names == [row["path"] for row in rows] == arrays["path"].tolist()
        assert sorted(names) == sorted(str(path) for path in Path(folder).rglob("*.png"))
        if labelled:
            labels = [Path(name).parent.name for name in names]
            assert labels == table["label"].to_pylist() == [r["label"] for r in rows] == arrays["label"].tolist()


def test_vectors_are_those_of_plain_timm(backbone: str, script) -> None:
    grey("flat", 3)
    status, _, err = script("eval/embed.py", "--backbone", backbone, "--data.path", "flat", "--out", "f.npz")
    assert status == 0, err
    model = timm.create_model(f"local-dir:{backbone}/backbone", pretrained=True).eval()
    config = json.loads(Path(backbone, "backbone/config.json").read_text())["pretrained_cfg"]
    levels = np.stack([np.asarray(Image.open(f"flat/{i:02d}.png")) for i in range(3)])
    pixels = torch.from_numpy(levels.astype(np.float32))[:, None] / 255
    with torch.inference_mode():
        expected = model((pixels - config["mean"][0]) / config["std"][0]).numpy()
    assert np.load("f.npz")["vector"] == pytest.approx(expected, abs=1e-5)


def test_the_function_gives_what_the_command_writes(backbone: str, script) -> None:
    import ssl_vit

    grey("sorted", classes=True)
    status, _, err = script("eval/embed.py", "--backbone", backbone, "--data.path", "sorted", "--out", "f.npz")
    assert status == 0, err
    found, written = ssl_vit.embed(backbone, "sorted", keep_features=False), np.load("f.npz")
    assert (found.vectors == written["vector"]).all()
    assert found.names == written["path"].tolist()
    assert found.labels == written["label"].tolist()
    assert ssl_vit.embed(backbone, grey("flat")).labels is None
    assert len(ssl_vit.embed(backbone).names) == 1797  # the run's own


def test_a_table_of_images_is_not_replaced(backbone: str, script) -> None:
    grey("flat")
    lines = ["file,label", *(f"flat/{i:02d}.png,{'ab'[i % 2]}" for i in range(12))]
    Path("mine.csv").write_text("\n".join(lines) + "\n")
    for words in (["--data.path", "mine.csv"], ["--data.path", "flat", "--data.labels", "mine.csv"]):
        status, _, err = script("eval/embed.py", "--backbone", backbone, *words, "--out", "./mine.csv")
        assert status == 1 and "--out mine.csv is what images or labels are read from" in err
    assert Path("mine.csv").read_text().splitlines() == lines
    Path("flat/metadata.csv").write_text("\n".join(["file_name,label", "00.png,a", "01.png,b"]) + "\n")
    whole = Path("flat/metadata.csv").read_bytes()
    status, _, err = script(
        "eval/embed.py", "--backbone", backbone, "--data.path", "flat", "--out", "flat/metadata.csv"
    )
    assert status == 1 and "--out flat/metadata.csv is what images or labels are read from" in err
    assert Path("flat/metadata.csv").read_bytes() == whole
    Path("flat/metadata.csv").unlink()
    for name in ("metadata.csv", "vectors.parquet"):
        status, _, err = script("eval/embed.py", "--backbone", backbone, "--data.path", "flat", "--out", f"flat/{name}")
        assert status == 1 and f"flat/{name} would be taken for images or labels by the next reading of flat" in err


def test_an_image_that_cannot_be_read_is_named_and_left_out(backbone: str, script) -> None:
    grey("flat")
    Path("flat/05.png").write_bytes(b"no image")
    status, said, err = script("eval/embed.py", "--backbone", backbone, "--data.path", "flat", "--out", "f.csv")
    assert status == 0
    assert "flat/05.png cannot be read" in err
    assert "11 images from flat, without labels, 1 left out (see above)" in said
    assert "flat/05.png" not in {row["path"] for row in rows_of("f.csv")}


def test_several_processes_write_the_same_table(backbone: str, script, tmp_path: Path, warm) -> None:
    grey("flat", 13)
    words = ["--backbone", backbone, "--data.path", "flat", "--embed.keep_features", "false", "--embed.batch_size", "3"]
    status, _, err = script("eval/embed.py", *words, "--out", "one.npz")
    assert status == 0, err
    done = warm(ROOT / "eval" / "embed.py", *words, "--out", "two.npz", cwd=tmp_path, processes=2)
    assert done.returncode == 0, done.stderr
    one, two = np.load("one.npz"), np.load("two.npz")
    assert one["path"].tolist() == two["path"].tolist()
    assert two["vector"] == pytest.approx(one["vector"], abs=1e-6)


@pytest.mark.parametrize(
    ("command", "words", "expected"),
    [
        ("embed", ["--out", "f.txt"], "--out f.txt must end in .parquet, .csv or .npz"),
        ("embed", ["--out", "no/f.csv"], "--out no/f.csv cannot be written"),
        ("embed", ["--data.path", "photo"], "there is no file or folder photo; did you mean photos?"),
        ("embed", ["--backbone", "rum"], "--backbone rum does not exist; give RUN, the folder of a pre-training run"),
        ("embed", ["--embed.batch_size", "0"], "--embed.batch_size 0 must be at least 1"),
        ("atlas", ["--out", "page.pdf"], "--out page.pdf must end in .html"),
        ("atlas", ["--atlas.clusters", "1"], "--atlas.clusters 1 must be at least 2 and at most 100"),
    ],
)
def test_what_is_wrong_is_one_line(
    command: str, words: list[str], expected: str, backbone: str, photos: Path, script
) -> None:
    status, said, err = script(f"eval/{command}.py", "--backbone", backbone, *words)
    assert (status, said, err.count("\n")) == (1, "", 1)
    assert expected in err


def test_an_atlas_of_the_runs_own_images_and_of_others(backbone: str, script) -> None:
    status, said, err = script("eval/atlas.py", "--backbone", backbone, "--atlas.map", "pca")
    assert (status, err) == (0, "")
    assert "1,797 images from digits, all of them labelled (10 classes)" in said
    assert "atlas.html: " in said
    text = Path("atlas.html").read_text()
    assert "<title>1,797 images from digits</title>" in text
    inside = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert inside is not None
    told = json.loads(inside[1])
    assert (told["count"], told["labels"], told["side"]) == (1797, list("0123456789"), 8)
    grey("few", 3)
    status, said, err = script("eval/atlas.py", "--backbone", backbone, "--data.path", "few", "--out", "few.html")
    assert (status, err) == (0, "")
    assert "3 images from few, without labels" in said


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(BROWSER is None, reason="needs a browser")
@pytest.mark.parametrize("pictures", ["4000", "100"])
def test_the_page_draws_itself_in_a_browser(pictures: str, backbone: str, script, tmp_path: Path) -> None:
    words = ["--backbone", backbone, "--atlas.map", "pca", "--atlas.pictures", pictures, "--atlas.clusters", "4"]
    status, _, err = script("eval/atlas.py", *words)
    assert status == 0, err
    given = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=3000",
        f"--user-data-dir={tmp_path}/b",
    ]
    page = (tmp_path / "atlas.html").as_uri()
    done = subprocess.run(
        [str(BROWSER), *given, "--dump-dom", page], capture_output=True, text=True, timeout=120, check=True
    )
    shown = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
    legend = shown.split('id="legend"')[1].split("<aside")[0]
    assert legend.count('aria-pressed="false"') == 10  # the last thing that the script draws
    assert shown.count("Cluster ") == 4
    assert shown.count('data-i="') > 80
    assert re.search(r'<canvas [^>]*width="\d{3,}"', shown)
