"""The doctor: headers, labels, groups, pixels and risks of images that are made here."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from ssl_vit.configs import CropsConfig, DataConfig, ResolvedAugment, ResolvedModel
from ssl_vit.configs.doctor import DoctorRecipe, check_doctor
from ssl_vit.configs.presets import PRESETS
from ssl_vit.configs.recipes import ResolvedPretraining
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.sources.folder import FileRows, groups_in
from ssl_vit.data.sources.known import KnownLabels
from ssl_vit.data.sources.locate import open_source
from ssl_vit.data.sources.part import Part
from ssl_vit.doctor.findings import Findings, listed, share
from ssl_vit.doctor.groups import examine_groups
from ssl_vit.doctor.headers import examine_headers, read_headers
from ssl_vit.doctor.labels import contradictions, examine_labels
from ssl_vit.doctor.risks import answers, examine_risks, share_missed, told_by_tones
from ssl_vit.doctor.sample import Sample, decode_some, examine_sample
from ssl_vit.leaks.duplicates import thumbnail
from ssl_vit.methods import METHODS
from ssl_vit.methods.dino import DINORecipe
from ssl_vit.methods.mae import MAERecipe, resolve
from ssl_vit.methods.method import Facts
from ssl_vit.models.build import ModelFacts
from ssl_vit.report.page.blocks import Fold
from ssl_vit.script import check_options

PHOTOS = ResolvedAugment(crop_scale=(0.2, 1.0), flip=True, policy="none", erasing=0.0)
FACTS = Facts(500, ResolvedModel("vit_tiny_patch16_224", 32, pool="mean"), ModelFacts(32, 4, 192, 12, 3))
NEVER = ResolvedAugment(crop_scale=(1.0, 1.0), flip=False, policy="none", erasing=0.0)


def saved(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def folder(tmp_path: Path, files: dict[str, bytes]) -> FileRows:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return FileRows(tmp_path, sorted(files))


def noise(side: int = 12, seed: int = 0, channels: int = 3) -> np.ndarray:
    shape = (side, side, channels) if channels > 1 else (side, side)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def lines(found: Findings) -> dict[str, str]:
    return dict(found.lines)


def named(*names: str) -> FileRows:
    return FileRows(Path("/nowhere"), sorted(names))


def test_headers_tell_kinds_sizes_copies_and_what_is_broken(tmp_path: Path) -> None:
    rows = folder(
        tmp_path,
        {"a.png": saved(noise()), "b.png": saved(noise()), "c.jpg": saved(noise(20, 1), "JPEG"),
         "d.png": saved(noise(12, 2, 1)), "e.png": b"no image", "f.png": b""},
    )  # fmt: skip
    found = examine_headers(read_headers(rows), [("train", 4), ("test", 2)])
    told = lines(found)
    assert told["number"].startswith("6: 4 train, 2 test; ")
    assert told["kind"] == "PNG, RGB 50 %; JPEG, RGB 25 %; PNG, grey 25 %"
    assert told["size"] == (
        "2 sizes, shorter side 12 to 20 px (median 12), longer side at most 20; 75 % are 12 x 12 px"
    )
    assert told["unreadable"].startswith(f"2: {tmp_path / 'e.png'} (not an image that Pillow can read), ")
    assert told["copies"].startswith("1 file equal to another to the last byte (25 %): ")
    assert any("cannot be read" in text for text in found.warnings)


def whole_list(found: Findings) -> Fold:
    (fold,) = [block for block in found.shown if isinstance(block, Fold)]
    return fold


def test_of_many_files_a_line_names_some_and_the_page_all(tmp_path: Path) -> None:
    rows = folder(tmp_path, {"good.png": saved(noise()), **{f"{i}.png": b"no image" for i in range(5)}})
    found = examine_headers(read_headers(rows), [("all", 6)])
    assert lines(found)["unreadable"].endswith(" and 2 more")
    assert " and 2 more (the page of --out lists all)" in " ".join(found.text.split())
    fold = whole_list(found)
    assert fold.title == "All 5 unreadable images"
    assert [line.partition(" ")[0] for line in str(fold.blocks[0]).splitlines()] == [
        str(tmp_path / f"{i}.png") for i in range(5)
    ]


CUT, FLAT = saved(noise(16))[:-40], saved(np.full((16, 16, 3), 7, np.uint8))


@pytest.mark.parametrize(("content", "what"), [(CUT, "broken images"), (FLAT, "images of one level only")])
def test_broken_and_empty_images_are_all_on_the_page(content: bytes, what: str, tmp_path: Path) -> None:
    rows = folder(tmp_path, {f"{i}.png": content for i in range(4)} | {"good.png": saved(noise(16))})
    canvas = ImageSet("made", rows, np.arange(5), Format(3, 8), Sizes((16, 16), 16), "x")
    found = examine_sample(decode_some(canvas, np.arange(5), 100), 5, 5)
    assert whole_list(found).title == f"All 4 {what}"
    assert " and 1 more (the page" in " ".join(found.text.split())


def test_of_many_classes_the_table_has_all() -> None:
    found = examine_labels([("all", part(np.arange(260) % 13, tuple("abcdefghijklm")))], "")
    assert "and 1 more (the page of --out lists all)" in " ".join(found.text.split())
    assert "All 13 classes" in whole_list(found).title
    assert "--out" not in examine_labels([("all", part([0, 1] * 20, ("a", "b")))], "").text


def test_mixed_depths_and_channels_are_warned_of(tmp_path: Path) -> None:
    deep = np.arange(144, dtype=np.uint16).reshape(12, 12) * 400
    rows = folder(tmp_path, {"a.png": saved(noise(12, 0, 1)), "b.png": saved(deep)})
    found = examine_headers(read_headers(rows), [("all", 2)])
    assert any("1 image of 8 bits among 1 of 16" in text for text in found.warnings)
    several = folder(tmp_path / "more", {"a.png": saved(noise())})
    made = read_headers(several)
    wide = made.looked[0]._replace(header=made.looked[0].header and made.looked[0].header._replace(channels=5))
    mixed = made._replace(looked=[made.looked[0], wide], rows=named("a.png", "b.png"))
    assert any("which training refuses" in text for text in examine_headers(mixed, [("all", 2)]).warnings)
    names = [f"{i}.png" for i in range(30)]
    one_odd = made._replace(looked=[wide, *[made.looked[0]] * 29], rows=named(*names))
    found = examine_headers(one_odd, [("all", 30)])
    assert lines(found)["channels"] == "1 image with others, as if unreadable: /nowhere/0.png has 5"
    assert not any("refuses" in text for text in found.warnings)


def part(labels: Any, classes: tuple[str, ...], kind: Any = "class") -> Part:
    rows = ArrayRows(np.zeros((len(labels), 1, 2, 2), np.uint8), "made")
    return Part(rows, "x", labels=np.array(labels), classes=classes, kind=kind)


def test_balance_and_rare_classes() -> None:
    found = examine_labels([("train", part([0] * 40 + [1] * 10, ("a", "b"))), ("test", part([0] * 4, ("a", "b")))], "")
    told = lines(found)
    assert told["classes"] == "2 classes: a 44, b 10"
    assert told["balance"] == "uneven: 4.4 times as many images of a as of b"
    assert any("balanced accuracy" in text for text in found.warnings)
    assert any("the split test has no image of b" in text for text in found.warnings)
    even = examine_labels([("all", part([0] * 20 + [1] * 20, ("a", "b")))], "")
    assert lines(even)["balance"] == "even: within a factor of 1"
    assert not even.warnings
    one = examine_labels([("all", part([0] * 20, ("a",)))], "")
    assert one.warnings == ["all images are of one class, a: judging needs two"]


def test_labels_of_other_kinds_and_none() -> None:
    several = examine_labels([("all", part([[1.0, 0.0], [1.0, 1.0]], ("a", "b"), "multilabel"))], "")
    assert lines(several)["labels"].startswith("2 labels, any number of them per image: a 2, b 1")
    assert [row[-1].text for row in several.shown[0].rows] == ["100.0 %", "50.0 %"]
    none = examine_labels([("all", part([[0.0, 0.0], [0.0, 0.0]], ("a", "b"), "multilabel"))], "")
    assert none.warnings == ["no image has any of the labels: there is nothing to learn from them"]
    numbers = examine_labels([("all", part([[1.0], [3.0]], ("age",), "regression"))], "")
    assert lines(numbers)["number"] == "age: 1 to 3, median 2, deviation 1"
    without = Part(ArrayRows(np.zeros((2, 1, 2, 2), np.uint8), "made"), "x")
    assert lines(examine_labels([("all", without)], "why"))["labels"] == "none can be read: why"


def group_option(found: Findings) -> str:
    (text,) = found.warnings
    return text.partition("--data.group ")[2].strip("'")


def test_patients_in_file_names_are_found_with_an_expression_that_a_run_takes() -> None:
    rows = named(*(f"patient{p:02d}_slide{s}_x{x:03d}.jpg" for p in range(8) for s in range(2) for x in range(5)))
    found = examine_groups(rows, None, DataConfig())
    option = group_option(found)
    assert {*groups_in({"all": rows.paths}, option)["all"]} == {f"patient{p:02d}" for p in range(8)}
    assert lines(found)["groups"] == (
        "8 by what stands before the first _ in the name, e.g. patient00, patient01, patient02; of 10 to 10 images "
        "(median 10)"
    )


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("scan-{p}_{i}.png", "what stands before the second - or _ in the name, e.g. scan-0, scan-1, scan-2"),
        ("plate{p}_site{p}_{i}.png", "what stands before the first _ in the name, e.g. plate0, plate1, plate2"),
        ("p{p} {i}.png", "what stands before the first space in the name, e.g. p0, p1, p2"),
        ("{p}7.{i}.png", "what stands before the first dot in the name, e.g. 07, 17, 27"),
        ("all/case{p}/{i}.png", "the second folder in the path, e.g. case0, case1, case2"),
    ],
)
def test_words_tell_what_groups_are_made_by(names: str, words: str) -> None:
    found = examine_groups(named(*(names.format(p=p, i=i) for p in range(4) for i in range(5))), None, DataConfig())
    assert lines(found)["groups"].startswith(f"4 by {words}; of 5 ")


def test_folders_of_scenes_are_groups() -> None:
    rows = named(*(f"cat/scene{s}/{i}.png" for s in range(4) for i in range(6)))
    assert {*groups_in({"all": rows.paths}, group_option(examine_groups(rows, None, DataConfig())))["all"]} == {
        f"scene{s}" for s in range(4)
    }


def test_a_column_named_like_a_group_is_found(tmp_path: Path) -> None:
    cells = [{"bytes": saved(noise(8, i)), "path": None} for i in range(24)]
    table = pa.table({"image": cells, "label": [i % 2 for i in range(24)], "patient_id": [i // 4 for i in range(24)]})
    pq.write_table(table, tmp_path / "scans.parquet")
    data = DataConfig(path=str(tmp_path / "scans.parquet"))
    found = examine_groups(open_source(data, labelled=False)["all"].rows, None, data)
    assert group_option(found) == "patient_id"
    assert lines(found)["groups"].startswith("6 by the column patient_id, e.g. 0, 1, 2; of 4 to 4 images")
    classes = np.arange(24) % 2
    assert group_option(examine_groups(open_source(data, labelled=False)["all"].rows, classes, data)) == "patient_id"
    repeats = np.arange(24) // 4  # the column says what the class does
    assert not examine_groups(open_source(data, labelled=False)["all"].rows, repeats, data).warnings
    known = DataConfig(path=data.path, group="patient_id")
    assert not examine_groups(open_source(known, labelled=False)["all"].rows, None, known).warnings


@pytest.mark.parametrize(
    "names",
    [
        [f"{i}.jpg" for i in range(40)],
        [f"IMG_{i:04d}.jpg" for i in range(40)],
        [f"{c}/{c}_{i}.jpg" for c in ("cat", "dog") for i in range(20)],
        [f"{w}.png" for w in ("night", "day", "rain", "snow", "sun")],
    ],
)
def test_plain_names_are_no_groups(names: list[str]) -> None:
    found = examine_groups(named(*names), None, DataConfig())
    assert not found.warnings
    assert lines(found)["groups"].startswith("none seen")


def test_names_of_classes_are_no_groups() -> None:
    names = sorted(f"n{c}_{i}.jpg" for c in (101, 202, 303) for i in range(20))
    labels = np.array([int(name[1]) for name in names])
    assert not examine_groups(named(*names), labels, DataConfig()).warnings
    assert examine_groups(named(*names), np.arange(60) % 3, DataConfig()).warnings


def test_an_image_without_a_label_does_not_hide_what_the_others_say() -> None:
    names = sorted(f"n{c}_{i}.jpg" for c in (101, 202, 303) for i in range(20))
    labels = np.array([int(name[1]) for name in names])
    labels[[7, 30]] = -1
    assert not examine_groups(named(*names), labels, DataConfig()).warnings
    nothing = np.full(60, -1)
    assert examine_groups(named(*names), nothing, DataConfig()).warnings
    assert examine_groups(named(*names), np.where(np.arange(60) < 3, 0, -1), DataConfig()).warnings


def test_equal_files_with_different_labels_are_told(tmp_path: Path) -> None:
    rows = folder(tmp_path, {f"{i}.png": saved(noise(seed=seed)) for i, seed in enumerate((0, 1, 1, 2, 2, 2))})
    found = Findings("labels")
    contradictions(found, read_headers(rows), KnownLabels("class", ("a", "b"), np.array([0, 0, 1, -1, 1, 1])))
    assert len(found.warnings) == 1
    assert found.warnings[0].startswith("1 file equal to another to the last byte and labelled otherwise: ")
    assert "1.png and " in found.warnings[0] and "2.png" in found.warnings[0]


def told_with(held: dict[str, list[int]]) -> Findings:
    """Of files that are named by their group, with the classes of each group's images."""
    rows = named(*(f"{group}_{i:03d}.jpg" for group, classes in held.items() for i in range(len(classes))))
    return examine_groups(rows, np.array([c for group in sorted(held) for c in held[group]]), DataConfig())


@pytest.mark.parametrize(
    ("held", "advised"),
    [
        ({"ILSVRC2012": [0, 0, 1, 1], "n01440764": [0] * 18, "n03028079": [2] * 20, "n03445777": [1] * 18}, False),
        ({"set1": [0] * 10 + [1] * 10, "set2": [2] * 10 + [3] * 10}, False),  # two whole classes in each
        ({f"p{p:02d}": [p % 2] * 9 for p in range(12)}, True),  # patients, ill or healthy
        ({"p00": [0] * 3, "p01": [1] * 3, **{f"p{p:02d}": [2 + p % 2] * 9 for p in range(2, 22)}}, True),  # rare ones
        ({"s1": [0, 1, 2] * 30, "s2": [0, 1, 2] * 3}, True),  # slides with every class, most images on one
        ({"s1": [0] * 80 + [1] * 8, "s2": [0] * 10 + [1] * 2}, True),  # the same, uneven
    ],
)
def test_groups_that_follow_classes_are_not_advised_and_patients_are(held: dict[str, list[int]], advised: bool) -> None:
    assert bool(told_with(held).warnings) == advised


def images(pixels: np.ndarray) -> ImageSet:
    rows = ArrayRows(pixels, "made")
    form = Format(pixels.shape[1], 8 * pixels.dtype.itemsize)
    return ImageSet("made", rows, np.arange(len(rows)), form, Sizes(pixels.shape[2:], pixels.shape[2]), "x")


def test_decoded_images_that_are_grey_empty_or_alike() -> None:
    draw = np.random.default_rng(0)
    pixels = np.repeat(draw.integers(0, 256, (40, 1, 16, 16), dtype=np.uint8), 3, axis=1)
    pixels[7] = 5
    pixels[20] = np.clip(pixels[3].astype(int) + 1, 0, 255)
    sample = decode_some(images(pixels), np.arange(40), 1000)
    found = examine_sample(sample, 40, 40)
    told = lines(found)
    assert told["decoded"] == "all; 0 broken"
    assert told["colour"] == "all are grey, in three equal channels"
    assert told["empty"] == "1 image of one level only: made row 7"
    assert told["look alike"].startswith("1 pair among 2 of 40 decoded images (5 %)")
    few = examine_sample(decode_some(images(pixels), np.arange(40), 10), 40, 40)
    assert lines(few)["decoded"] == "10 evenly spaced ones of 40; 0 broken"


def test_shares_are_of_what_was_tried_or_of_what_decoded(tmp_path: Path) -> None:
    grey = [np.repeat(noise(16, i, 1)[:, :, None], 3, axis=2) for i in range(3)]
    flat = np.full((16, 16, 3), 7, np.uint8)
    cut = saved(noise(16, 9))[:-40]  # its header can be read
    rows = folder(
        tmp_path,
        {"a.png": saved(grey[0]), "b.png": saved(grey[0], "BMP"), "c.png": saved(grey[1]), "d.png": saved(grey[2]),
         "e.png": saved(flat), "f.png": cut, "g.png": b"no image", "h.png": b"no image"},
    )  # fmt: skip
    canvas = ImageSet("made", rows, np.arange(8), Format(3, 8), Sizes((16, 16), 16), "x")
    found = examine_sample(decode_some(canvas, np.arange(6), 100), 6, 8)
    told = lines(found)
    assert told["decoded"].startswith(f"the 6 of 8 whose header can be read; 1 broken: {tmp_path / 'f.png'}")
    assert told["look alike"] == "1 pair among 2 of 5 decoded images (40 %)"
    assert [text.partition(";")[0].partition(" look")[0] for text in found.warnings] == [
        "1 of 6 images (17 %) break when they are decoded",
        "1 of 5 decoded images (20 %) show nothing",
        "2 of 5 decoded images (40 %)",
    ]
    some = examine_sample(decode_some(canvas, np.arange(6), 3), 6, 8)
    assert lines(some)["decoded"].startswith("3 evenly spaced ones of 8; ")


def wedges(count: int, *, sided: bool) -> np.ndarray:
    """Bright quarters of a dark square: always on the left, or on either side."""
    draw = np.random.default_rng(1)
    pixels = draw.integers(0, 60, (count, 1, 32, 32), dtype=np.uint8)
    for i in range(count):
        left, size = draw.integers(0, 6), draw.integers(8, 14)
        pixels[i, 0, left : left + size, left : left + size] = 255
        if not sided and i % 2:
            pixels[i] = pixels[i, :, :, ::-1]
    return pixels


def sampled(pixels: np.ndarray) -> Sample:
    return decode_some(images(pixels), np.arange(len(pixels)), 10_000)


def mae(augment: ResolvedAugment) -> ResolvedPretraining:
    return replace(resolve(MAERecipe(), FACTS, PRESETS["px32"]), augment=augment)


def test_images_with_a_direction_are_warned_of_and_others_are_not() -> None:
    one_sided = examine_risks(sampled(wedges(200, sided=True)), None, (), "class", mae(PHOTOS))
    assert any("--augment.flip false" in text for text in one_sided.warnings)
    both = examine_risks(sampled(wedges(200, sided=False)), None, (), "class", mae(PHOTOS))
    assert not any("flip" in text for text in both.warnings)
    kept = examine_risks(sampled(wedges(200, sided=True)), None, (), "class", mae(NEVER))
    assert not kept.warnings
    assert "mirrors nothing" in lines(kept)["direction"]


def test_labels_that_mirroring_leaves_alone_are_no_reason_to_warn() -> None:
    pixels = wedges(200, sided=True)
    pixels[::2, :, 24:] = 255  # the class is a stripe that has no sides
    labels = np.arange(200) % 2
    found = examine_risks(sampled(pixels), labels, ("stripe", "none"), "class", mae(PHOTOS))
    assert not any("flip" in text for text in found.warnings)


def test_mirrored_images_ask_their_neighbours() -> None:
    pixels = wedges(120, sided=True)
    pixels[60:] = pixels[60:, :, :, ::-1]
    thumbnails = np.stack([thumbnail(image) for image in pixels])  # pyright: ignore[reportCallIssue, reportArgumentType]
    labels = np.arange(120) // 60
    straight = answers(thumbnails, labels, thumbnails)
    mirrored = answers(thumbnails, labels, np.ascontiguousarray(thumbnails[:, :, ::-1]))
    assert straight.right == 1.0
    assert mirrored.right == 0.0
    assert mirrored.distance == pytest.approx(straight.distance, rel=0.1)


def test_names_of_sides_are_warned_of() -> None:
    found = examine_risks(sampled(wedges(5, sided=False)), None, ("left_eye", "right_eye"), "class", mae(PHOTOS))
    assert any("left_eye, right_eye" in text and "--augment.flip false" in text for text in found.warnings)


def test_values_that_are_measured_are_no_colours() -> None:
    dino = METHODS["dino"].resolve(DINORecipe(crops=CropsConfig(jitter=1.0, solarise=0.2)), FACTS, PRESETS["px32"])
    deep = wedges(20, sided=False).astype(np.uint16) * 100
    assert any("--crops.jitter 0" in t for t in examine_risks(sampled(deep), None, (), "class", dino).warnings)
    assert not examine_risks(sampled(deep), None, (), "class", mae(NEVER)).warnings


def test_brightness_alone_tells_classes_or_does_not() -> None:
    draw = np.random.default_rng(0)
    labels = np.arange(400) % 2
    assert told_by_tones(draw.normal(size=(400, 2)) + 6 * labels[:, None], labels)[0] == 1.0
    right, guess = told_by_tones(draw.normal(size=(400, 2)), labels)
    assert guess == 0.5
    assert 0.3 < right < 0.7


def test_crops_miss_small_things_and_never_whole_images() -> None:
    small = np.full((50, 32, 32), 100, np.uint8)
    small[:, 2:5, 2:5] = 255
    everywhere = np.random.default_rng(0).integers(0, 256, (50, 32, 32), dtype=np.uint8)
    assert share_missed(small, (0.05, 0.2)) > 0.5
    assert share_missed(everywhere, (0.4, 1.0)) == 0.0
    assert share_missed(small, (1.0, 1.0)) == 0.0


def test_numbers_to_predict_are_not_zoomed_without_a_word() -> None:
    found = examine_risks(sampled(wedges(10, sided=False)), None, ("cell_area",), "regression", mae(PHOTOS))
    assert any("cell_area is measured in pixels: crops enlarge things up to 2.2 times" in t for t in found.warnings)


def test_words() -> None:
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"
    assert [share(n, 1000) for n in (0, 3, 120)] == ["none", "less than 1 %", "12 %"]
    found = Findings("part", [("name", "text " * 40)], ["look"])
    assert max(map(len, found.text.splitlines())) < 120
    assert found.text.splitlines()[-1] == f"{'warning':<16}look"


def test_a_wrong_path_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    with pytest.raises(UserError, match=r"there is no file or folder .*cell; did you mean cells"):
        check_options(DoctorRecipe(data=DataConfig(path=str(tmp_path / "cell"))))
    with pytest.raises(UserError, match=r"--out doctor.pdf must end in .html"):
        check_doctor(DoctorRecipe(out="doctor.pdf"))
    check_doctor(DoctorRecipe(data=DataConfig(path=str(tmp_path / "cells")), out="doctor.html"))
    check_options(DoctorRecipe(data=DataConfig(path="uoft-cs/cifar10")))


def test_neighbours_of_a_class_of_few_images_are_of_that_class() -> None:
    """With twelve of each digit, thirty neighbours are others whatever the images show."""
    digits = load_digits()
    first = np.sort(np.concatenate([np.flatnonzero(digits.target == c)[:12] for c in range(10)]))
    small = [thumbnail((15.9 * digits.images[i]).astype(np.uint8)[None]) for i in first]
    thumbnails = np.stack([t for t in small if t is not None])
    right = answers(thumbnails, digits.target[first], thumbnails).right
    assert right is not None
    assert right > 0.7
