"""Pictures of a verdict: which neighbours and mistakes, in which order, under which names, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.text import Text
from PIL import Image
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.scale import PixelScale
from ssl_vit.evaluation.features import Features
from ssl_vit.exports.timm_folder import Exported, export_backbone, load_backbone
from ssl_vit.figures.gallery import Start, save_gallery
from ssl_vit.figures.mistakes import Answers, per_cent, save_mistakes, surest_mistakes
from ssl_vit.figures.neighbours import alike, nearest, save_neighbours, spread_over_classes
from ssl_vit.figures.panels import Sheet
from ssl_vit.figures.pixels import colouring, cut, thumbnails
from ssl_vit.figures.words import class_names, drawable, file_name, shortened
from ssl_vit.models.build import make_backbone

NAMES = ("plain $x_1$", "a class with a very long name, one", "a class with a very long name, two")


def image_set(labels: list, classes: tuple[str, ...] = NAMES, channels: int = 1, bits: int = 8, **other) -> ImageSet:
    """Every image has one grey level of its own: its position times ten."""
    pixels = np.full((len(labels), channels, 8, 8), 0, dtype=np.uint8 if bits == 8 else np.uint16)
    pixels += (10 * np.arange(len(labels), dtype=pixels.dtype))[:, None, None, None]
    rows = ArrayRows(pixels, "some/where")
    labelled = {"labels": np.array(labels), "classes": classes, **other}
    return ImageSet("some", rows, np.arange(len(labels)), Format(channels, bits), Sizes((8, 8), 8), "x", **labelled)


def features(images: ImageSet, x: list[list[float]], index: list[int] | None = None) -> Features:
    where = np.arange(len(images)) if index is None else np.array(index)
    assert images.labels is not None
    return Features(np.array(x, dtype=np.float32), images.labels[where], where, ())


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Sheet]:
    """The sheets that are saved, as they were when they were."""
    sheets: list[Sheet] = []
    save = Sheet.save

    def kept(self: Sheet, path: Path) -> None:
        sheets.append(self)
        save(self, path)

    monkeypatch.setattr(Sheet, "save", kept)
    return sheets


def words(sheet: Sheet, row: int, column: int) -> list[str]:
    return [text.get_text() for text in sheet.axes[row, column].texts]


def level(sheet: Sheet, row: int, column: int) -> float:
    """The grey level of a panel, in [0, 1]."""
    return float(sheet.axes[row, column].images[0].get_array().mean())


def dashed(sheet: Sheet, row: int, column: int) -> list[bool]:
    return [patch.get_linestyle() not in ("-", "solid") for patch in sheet.axes[row, column].patches]


def test_neighbours_are_the_largest_cosines_in_order_and_positions_are_those_of_the_sets() -> None:
    images = image_set([0] * 6)
    # By cosine with (1, 0): rows 2, 4, 0, 3; row 1 is the longest, and would be the first by the product.
    train = features(images, [[1, 1], [9, 20], [1, 0], [0, 1], [5, 1]], [0, 1, 2, 4, 5])
    test = features(images, [[0, 7], [0.1, 0]], [1, 3])
    assert nearest(train, test, np.array([3, 1]), 3).tolist() == [[2, 5, 0], [4, 1, 0]]
    assert nearest(train, test, np.array([3])).shape == (1, 5)  # no more than there are
    ties = features(images, [[2, 0], [1, 0], [3, 0], [0, 0]], [5, 3, 2, 1])
    assert nearest(ties, test, np.array([3]), 4).tolist() == [[5, 3, 2, 1]]


@pytest.mark.parametrize(
    ("labels", "count", "rows"),
    [
        ([0, 0, 0, 1, 1, 1, 2], 3, [1, 4, 6]),  # the middle one of each
        ([0, 0, 0, 1, 1, 1, 2], 8, [0, 2, 3, 5, 6]),
        ([1, 0, 1, 0, 4, 4], 2, [3, 5]),  # the first and the last class
        ([2], 8, [0]),
    ],
)
def test_images_are_spread_over_classes(labels: list[int], count: int, rows: list[int]) -> None:
    assert spread_over_classes(np.array(labels), count).tolist() == rows


def test_images_with_other_labels_are_spread_over_the_set() -> None:
    assert spread_over_classes(np.zeros((9, 2)), 3).tolist() == [0, 4, 8]


def test_each_row_shows_a_query_and_its_neighbours_and_marks_them_twice(tmp_path: Path, drawn: list[Sheet]) -> None:
    train, test = image_set([0, 1, 2, 0, 1, 2]), image_set([0, 1, 2])
    found = {"MAE": np.array([[3, 1], [4, 2]]), "raw pixels": np.array([[0, 3], [5, 4]])}
    save_neighbours(train, test, np.array([0, 2]), found, tmp_path / "new" / "n.png", size=8, title="A $ title_{1")
    [sheet] = drawn
    assert sheet.axes.shape == (4, 3)
    assert [[round(50 * level(sheet, row, c)) for c in (1, 2)] for row in range(4)] == [
        [30, 10], [0, 30], [40, 20], [50, 40],
    ]  # fmt: skip
    assert [round(50 * level(sheet, row, 0)) for row in (0, 2)] == [0, 20]
    one, two = "a class…me, one", "a class…me, two"
    assert words(sheet, 0, 0) == ["plain $x_1$"]
    assert words(sheet, 2, 0) == [two]
    assert [words(sheet, row, c) for row in (0, 2) for c in (1, 2)] == [
        ["✓ plain $x_1$"], [f"✗ {one}"], [f"✗ {one}"], [f"✓ {two}"],
    ]  # fmt: skip
    assert [dashed(sheet, row, c) for row in (0, 2) for c in (1, 2)] == [[False], [True], [True], [False]]
    assert [sheet.axes[row, 1].get_ylabel() for row in range(4)] == ["MAE", "raw pixels"] * 2
    texts = sheet.figure.findobj(Text)
    assert all(not text.get_parse_math() for text in texts if "$" in text.get_text())
    with Image.open(tmp_path / "new" / "n.png") as picture:
        assert picture.convert("RGB").getpixel((2, 2)) == (255, 255, 255)


def test_one_representation_needs_no_name_and_numbers_are_not_marked(tmp_path: Path, drawn: list[Sheet]) -> None:
    labels = [[0.5, 12345.0], [1.25, -3.0], [2.0, 0.0]]
    numbers = image_set(labels, ("a", "b"), kind="regression")
    save_neighbours(numbers, numbers, np.array([1]), {"MAE": np.array([[2, 0]])}, tmp_path / "n.png", size=8, title="t")
    assert words(drawn[0], 0, 0) == ["1.25, -3"]
    assert words(drawn[0], 0, 2) == ["0.5, 1.23e+04"]
    assert dashed(drawn[0], 0, 1) == []
    assert drawn[0].axes[0, 1].get_ylabel() == ""
    assert "✓" not in "".join(text.get_text() for text in drawn[0].figure.texts)


def test_several_labels_are_alike_where_all_of_them_are(tmp_path: Path, drawn: list[Sheet]) -> None:
    several = image_set([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]], ("cat", "dog"), kind="multilabel")
    queries, found = np.array([1]), np.array([[3, 0, 2]])
    same = alike(several, several, queries, found)
    assert same is not None
    assert same.tolist() == [[True, False, False]]
    save_neighbours(several, several, queries, {"MAE": found}, tmp_path / "n.png", size=8, title="t")
    assert [words(drawn[0], 0, c)[0] for c in range(4)] == ["cat, dog", "✓ cat, dog", "✗ cat", "✗ none"]


def test_mistakes_come_surest_first_with_what_was_said_and_what_is_right(tmp_path: Path, drawn: list[Sheet]) -> None:
    test = image_set([0, 1, 2, 0, 1, 2])
    # Position 3 could not be read: answers are fewer than images.
    answers = Answers(np.array([0, 2, 2, 0, 1]), np.array([0.9, 0.6, 0.3, 0.97, 0.99971]), np.array([0, 1, 2, 4, 5]))
    wrong = save_mistakes(test, answers, tmp_path / "m.png", size=8, title="Mistakes")
    assert wrong.tolist() == [4, 3, 1]
    [sheet] = drawn
    assert [words(sheet, 0, c) for c in range(3)] == [
        ["said a class…me, one (> 99.9%)", "is a class…me, two", "where row 5"],
        ["said plain $x_1$ (97%)", "is a class…me, one", "where row 4"],
        ["said a class…me, two (60%)", "is a class…me, one", "where row 1"],
    ]
    assert level(sheet, 0, 0) > level(sheet, 0, 1) > level(sheet, 0, 2)
    assert not sheet.axes[0, 3].images
    assert "3 of 5 answers are wrong; here are all of them" in "".join(text.get_text() for text in sheet.figure.texts)


def test_at_most_so_many_mistakes_are_drawn_and_none_makes_no_picture(tmp_path: Path, drawn: list[Sheet]) -> None:
    test = image_set([0] * 9)
    answers = Answers(np.full(9, 1), np.linspace(0.5, 0.9, 9), np.arange(9))
    assert len(save_mistakes(test, answers, tmp_path / "m.png", size=8, title="t", most=5)) == 9
    assert drawn[0].axes.shape == (2, 4)
    assert [bool(axes.images) for axes in drawn[0].axes.flat] == [True] * 5 + [False] * 3
    assert (
        len(save_mistakes(test, answers._replace(predicted=np.zeros(9, int)), tmp_path / "n.png", size=8, title="t"))
        == 0
    )
    assert not (tmp_path / "n.png").exists()
    assert surest_mistakes(np.array([1, 1, 0, 1]), np.full(4, 0.5), np.zeros(4, int)).tolist() == [0, 1, 3]


def test_words_stay_below_their_own_panel(tmp_path: Path, drawn: list[Sheet]) -> None:
    wide = image_set([0, 1], ("W" * 30, "i"))
    save_neighbours(wide, wide, np.array([0]), {"MAE": np.array([[0, 1]])}, tmp_path / "n.png", size=8, title="t")
    axes = drawn[0].axes[0, 1]
    assert axes.texts[0].get_window_extent().width <= axes.get_window_extent().width * 1.01
    assert drawn[0].axes[0, 2].texts[0].get_fontsize() == 8


def test_certainty_is_not_overstated() -> None:
    assert [per_cent(p) for p in (0.333, 0.98, 0.985, 0.9994, 0.9996, 1.0)] == [
        "33%", "98%", "98.5%", "99.9%", "> 99.9%", "> 99.9%",
    ]  # fmt: skip


def test_names_stay_apart_in_few_letters_of_the_font() -> None:
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghij", 7) == "abc…hij"
    assert drawable("two\nlines\tand 名") == "two lines and ?"
    assert class_names(["名犬", "  ", "what?", "é"]) == ["class 0", "class 1", "what?", "é"]
    alike = class_names(["n0144-the-first-of-the-tench", "n0144-the-other-of-the-tench", "b"], 16)
    assert alike == ["n0144-…-tench #0", "n0144-…-tench #1", "b"]
    assert file_name("/data/far away/a_b.png") == "a_b.png"
    assert file_name("table row 3 (images/x.png)") == "x.png"
    assert file_name("table row 3 (x.png)") == "table row 3 (x.png)"


def test_thumbnails_are_grey_in_colour_or_in_false_colours() -> None:
    ramp = torch.linspace(0.1, 0.2, 64).reshape(1, 1, 8, 8)
    grey = thumbnails(ramp, 16)
    assert np.ptp(grey, axis=3).max() == 0.0
    assert (grey.min(), grey.max()) == (0.0, 1.0)
    two = thumbnails(torch.cat([ramp, ramp.flip(2)], dim=1), 8)
    assert (two[..., 0] == two[..., 2]).all()
    assert np.allclose(two[..., 1], two[:, ::-1, :, 0], atol=1e-6)
    # A faint channel of a microscope gets its own scale; the channels of a photograph share one.
    faint = torch.cat([ramp, 0.01 * ramp, ramp], dim=1)
    assert thumbnails(faint, 16)[..., 1].max() == 1.0
    assert thumbnails(faint, 8)[..., 1].max() < 0.02
    assert thumbnails(torch.cat([faint, ramp], dim=1), 8).shape == (1, 8, 8, 3)
    assert (colouring(1, 16), colouring(3, 8)) == ("", "")
    assert colouring(2, 8) == "False colours: channels 1 and 2 in magenta and green."
    assert colouring(4, 8) == "False colours: channels 1 to 3 in red, green and blue; channel 4 is not shown."
    assert colouring(6, 16).endswith("channels 4 to 6 are not shown.")


def test_images_are_cut_in_the_order_asked_for_and_unreadable_ones_are_named() -> None:
    images = image_set([0] * 5)
    assert (cut(images, np.array([3, 0, 3]), 4)[:, 0, 0, 0] * 255).round().tolist() == [30, 0, 30]
    broken = replace(images, rows=Broken())
    with pytest.raises(UserError, match="cannot be drawn: file 1 cannot be read"):
        cut(broken, np.array([0, 1]), 8)


class Broken:
    def __len__(self) -> int:
        return 5

    def raw(self, row: int) -> bytes | np.ndarray:
        return b"no image" if row == 1 else np.zeros((1, 8, 8), dtype=np.uint8)

    def where(self, row: int) -> str:
        return f"file {row}"


def exported(folder: Path, channels: int, bits: int, *, class_token: bool) -> Exported:
    torch.manual_seed(0)
    args = {"img_size": 8, "patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 2, "in_chans": channels}
    if not class_token:
        args |= {"class_token": False, "global_pool": "avg", "fc_norm": False}
    scale = PixelScale((0.5,) * channels, (0.25,) * channels, bits)
    export_backbone(
        make_backbone("vit_tiny_patch16_224", args), folder / "backbone", scale, "cls" if class_token else "mean", {}
    )
    return load_backbone(str(folder))


@pytest.mark.parametrize(("channels", "bits"), [(1, 8), (2, 16)])
def test_the_gallery_draws_what_is_known_and_lists_it(tmp_path: Path, channels: int, bits: int) -> None:
    train, test = (image_set([0, 1, 2] * n, channels=channels, bits=bits) for n in (3, 2))
    random = [np.random.default_rng(k).random((len(s), 3)).tolist() for k in (0, 1) for s in (train, test)]
    known = features(train, random[0]), features(test, random[1])
    own = features(train, random[2]), features(test, random[3])
    mae, dino = (exported(tmp_path / name, channels, bits, class_token=name == "dino") for name in ("mae", "dino"))
    (tmp_path / "mae" / "figures").mkdir()
    (tmp_path / "mae" / "figures" / "reconstructions.png").write_bytes(b"a picture")
    right, sure = np.array([0, 1, 2, 0, 1, 2]), np.full(6, 0.75)
    starts = {
        "mae": Start("MAE", mae, known, Answers(right, sure, np.arange(6)), "fine-tuned on 9 labels"),
        "dino": Start("DINO", dino, own),
        "scratch": Start("labelled baseline", answers=Answers(right[::-1].copy(), sure, np.arange(6))),
        "pixels": Start("raw pixels", features=own),
    }
    made = save_gallery(starts, train, test, tmp_path / "pictures")
    assert json.loads((tmp_path / "pictures" / "pictures.json").read_text(encoding="utf-8")) == made
    assert [entry["file"] for entry in made] == [
        "mae-neighbours.png", "dino-neighbours.png", None, "scratch-mistakes.png", "mae-reconstructions.png",
        "mae-pca.png", "dino-attention.png", "dino-pca.png",
    ]  # fmt: skip
    files = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert files == {entry["file"] for entry in made if entry["file"]} | {"pictures.json"}
    assert (tmp_path / "pictures" / "mae-reconstructions.png").read_bytes() == b"a picture"
    assert [entry["start"] for entry in made] == ["mae", "dino", "mae", "scratch", "mae", "mae", "dino", "dino"]
    assert made[2]["caption"] == "No picture: MAE, fine-tuned on 9 labels, makes no mistake on 6 test images."
    said = made[3]["caption"]
    assert said is not None
    assert said.startswith(
        "Labelled baseline is wrong on 4 of 6 test images. The surest mistake: where row 0 is plain $x_1$"
    )
    assert "was taken for a class with a very long name, two (75%)" in said
    counted = made[0]["caption"]
    assert counted is not None
    queries = spread_over_classes(right, 4)
    for name, (known_train, known_test) in (("MAE", known), ("raw pixels", own)):
        same = alike(train, test, queries, nearest(known_train, known_test, queries))
        assert same is not None
        assert f"{name} {same.sum()} of 18" in counted


def test_without_any_backbone_there_are_still_mistakes(tmp_path: Path) -> None:
    test = image_set([0, 1])
    answers = Answers(np.array([1, 1]), np.array([0.5, 0.5]), np.arange(2))
    made = save_gallery({"scratch": Start("baseline", answers=answers)}, test, test, tmp_path)
    assert [entry["file"] for entry in made] == ["scratch-mistakes.png"]
    assert save_gallery({}, test, test, tmp_path / "none") == []
