"""Test images in a pool or among training images: left out, refused, gone on with, declared."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from ssl_vit.configs import DataConfig, GuardedConfig, LabelledDataConfig, PoolConfig, PredictRecipe, to_dict
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import forget
from ssl_vit.data.sources.opening import open_labelled, open_pool
from ssl_vit.exports.origin import own_data, recorded_data
from ssl_vit.leaks import matching
from ssl_vit.leaks.guard import Guarded, guard_labelled, guard_pool, on_leak, seen_in_pre_training
from ssl_vit.leaks.matching import in_one_place
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.methods.supervised import SupervisedRecipe
from ssl_vit.runs.identity import differences, identity

CPU = torch.device("cpu")
SAME = LabelledDataConfig()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Folders of two classes: alone, and with 20 training and 10 test images; the same pixels in both."""
    for n in range(30):
        pixels = np.random.default_rng(n).integers(0, 256, (16, 16), dtype=np.uint8)
        for place in ("alone", "split/train" if n < 20 else "split/test"):
            path = tmp_path / place / ("cat", "dog")[n % 2] / f"{n}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path, compress_level=1 if place == "alone" else 9)
    return tmp_path


def guarded(data: PoolConfig, judged_on: LabelledDataConfig = SAME) -> Guarded:
    pool, _ = open_pool(data, judged_on)
    return guard_pool(pool, data, judged_on)


def names(found: Guarded) -> set[int]:
    return {int(Path(found.images.where(i)).stem) for i in range(len(found.images))}


def test_usual_pools_lose_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for data, count in [
        (PoolConfig(), 1438),
        (PoolConfig(path=str(root / "alone")), 24),
        (PoolConfig(path=str(root / "split")), 20),
        (PoolConfig(path=str(root / "split"), split="train"), 20),
    ]:
        found = guarded(data)
        assert (len(found.images), found.omission, found.about["seen"]) == (count, None, 0)
        captured = capsys.readouterr()
        assert captured.out == f"leak guard      none of the {count:,} images of the pool shows a test image\n"
        assert captured.err == ""
    elsewhere = guarded(PoolConfig(path=str(root / "alone")), LabelledDataConfig(path="owner/elsewhere"))
    assert (len(elsewhere.images), elsewhere.omission, elsewhere.about) == (30, None, {})
    told = "note: no test images are looked for in the pool: owner/elsewhere is not on this machine\n"
    assert capsys.readouterr() == ("", told)


def test_what_shows_test_images_is_left_out_and_listed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    split = str(root / "split")
    table = root / "labels.csv"
    table.write_text(
        "file,label\n" + "".join(f"alone/{'cat' if n % 2 == 0 else 'dog'}/{n}.png,{n % 2}\n" for n in range(12))
    )
    cases = [
        (PoolConfig(path=split, split="train+test"), SAME, 20, "10 the same row"),
        (PoolConfig(path=str(root / "alone")), LabelledDataConfig(path=split), 20, "10 the same pixels"),
        (PoolConfig(path=str(root / "alone")), LabelledDataConfig(path=str(table)), 28, "2 the same file"),
    ]
    for data, judged_on, left, how in cases:
        found = guarded(data, judged_on)
        test = open_labelled(data, judged_on).test
        assert found.omission is not None
        gone = found.omission.total - left
        assert (len(found.images), len(found.omission.images), found.about["seen"]) == (left, gone, 0)
        assert not {Path(test.where(i).rstrip(")")).name for i in range(len(test))} & {f"{n}.png" for n in names(found)}
        captured = capsys.readouterr()
        assert captured.out == (
            f"leak guard      {gone} of {left + gone} images of the pool are left out, because they show test images "
            f"({how}): left_out_pool.csv\n"
        )
        assert captured.err == ""
        found.omission.write(root)
        listed = list(csv.DictReader((root / "left_out_pool.csv").read_text().splitlines()))
        assert len(listed) == gone
        for line in listed:
            assert Path(line["image"]).stem == Path(line["test_image"].rstrip(")")).stem
            assert line["how"] in how


def test_stop_and_warn_and_declare(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = PoolConfig(path=str(root / "split"), split="train+test", on_leak="stop")
    with pytest.raises(UserError) as stopped:
        guarded(data)
    message = str(stopped.value)
    assert "\n" not in message
    assert "10 of the 30 images of the pool show 10 of the 10 test images of" in message
    for way in ("--data.on_leak drop", "--data.split", "--data.transductive true", "--data.on_leak warn"):
        assert way in message
    forget()
    capsys.readouterr()
    warned = guarded(replace(data, on_leak="warn"))
    assert (len(warned.images), warned.omission, warned.about["seen"]) == (30, None, 10)
    assert "warning: 10 of the 30 images of the pool show 10 of the 10" in capsys.readouterr().err
    declared = guarded(replace(data, transductive=True))
    assert (len(declared.images), declared.omission, declared.about["seen"]) == (30, None, 10)
    assert "note: pre-training on 10 of the 10 test images, as declared" in capsys.readouterr().err


def test_labelled_images_that_cannot_be_read_are_told(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "labels.csv").write_text("file,phase\nalone/cat/0.png,G1\n")
    found = guarded(
        PoolConfig(path=str(root / "alone")), LabelledDataConfig(path=str(root / "labels.csv"), label_column="x")
    )
    assert (len(found.images), found.omission) == (30, None)
    assert "note: no test images are looked for in the pool: " in capsys.readouterr().err


def test_a_pool_of_test_images_alone_is_refused(root: Path) -> None:
    with pytest.raises(UserError, match=r"10 of the 10 images of the pool.*nothing would be left.*--data.transductive"):
        guarded(PoolConfig(path=str(root / "split" / "test")), LabelledDataConfig(path=str(root / "split")))


def test_a_link_to_a_file_is_the_file(root: Path) -> None:
    (root / "linked").mkdir()
    for n in (5, 25):
        (root / "linked" / f"{n}.png").symlink_to(root / "split" / ("train", "test")[n > 20] / "dog" / f"{n}.png")
    found = guarded(PoolConfig(path=str(root / "linked")), LabelledDataConfig(path=str(root / "split")))
    assert names(found) == {5}
    assert found.omission is not None
    assert found.omission.images[0].how == "the same file"


def test_declaring_nothing_is_told(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guarded(PoolConfig(path=str(root / "split"), transductive=True))
    assert "note: --data.transductive: no image that would be judged on" in capsys.readouterr().err


def test_declared_pools_keep_the_made_test_split(capsys: pytest.CaptureFixture[str]) -> None:
    data = PoolConfig(transductive=True)
    found = guarded(data)
    assert len(found.images) == 1797
    assert "note: pre-training on 359 of the 359 test images, as declared" in capsys.readouterr().err
    test = open_labelled(DataConfig(), SAME).test
    about = recorded_data(data, SAME) | {"pool_fingerprint": found.images.fingerprint}
    assert seen_in_pre_training(about, test) == 359
    assert seen_in_pre_training(about | {"guarded": found.about}, test) == 359


def test_training_images_that_show_test_images(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for n in (3, 4):
        name = f"{('cat', 'dog')[n % 2]}/{n}.png"
        (root / "split" / "test" / name).write_bytes((root / "split" / "train" / name).read_bytes())
    data = DataConfig(path=str(root / "split"))
    found = open_labelled(data, SAME)
    kept, omission = guard_labelled(found, "drop", None)
    assert omission is not None
    assert {(Path(one.image).stem, one.how) for one in omission.images} == {
        ("3", "the same bytes"),
        ("4", "the same bytes"),
    }
    assert (len(kept.train), len(kept.test)) == (18, 12)
    assert kept.whole == kept.train.fingerprint != found.whole
    assert "2 of 20 training images are left out" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"2 of the 20 training images show 2 of the 12.*--eval.data.on_leak drop"):
        guard_labelled(found, "stop", None)
    alike, warned = guard_labelled(found, "warn", None)
    assert alike == found and warned == replace(omission, kept=True)
    assert "warning: 2 of the 20 training images" in capsys.readouterr().err


def test_one_class_alone_is_refused(root: Path) -> None:
    for path in (root / "split" / "train" / "cat").iterdir():
        (root / "split" / "test" / "cat" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(UserError, match=r"10 of 20 training images are left out.*one class only"):
        guard_labelled(open_labelled(DataConfig(path=str(root / "split")), SAME), "drop", None)


def test_blank_images_are_nobodys_copies(tmp_path: Path) -> None:
    for n in range(30):
        pixels = (
            np.random.default_rng(n).integers(0, 256, (16, 16), dtype=np.uint8)
            if n % 3
            else np.zeros((16, 16), np.uint8)
        )
        path = tmp_path / ("train" if n < 20 else "test") / "ab"[n % 2] / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    assert guard_labelled(open_labelled(DataConfig(path=str(tmp_path)), SAME), "drop", None)[1] is None


def test_what_was_found_is_kept_until_files_change(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_VIT_CACHE", str(tmp_path / "kept"))
    data, judged_on = PoolConfig(path=str(root / "alone")), LabelledDataConfig(path=str(root / "split"))
    first = guarded(data, judged_on)
    looked: list[object] = []
    look = matching.look
    monkeypatch.setattr(matching, "look", lambda *a: looked.append(a) or look(*a))
    again = guarded(data, judged_on)
    assert not looked
    assert again.omission == first.omission
    assert again.images.fingerprint == first.images.fingerprint
    path = root / "alone" / "cat" / "20.png"
    raw = bytearray(path.read_bytes())
    raw[-20] ^= 1  # of the same size
    for each in (root / "alone").rglob("*.png"):
        if each == path:
            each.write_bytes(bytes(raw))
    for file in (tmp_path / "kept" / "leaks").iterdir():  # damaged: looked again, and written anew
        file.write_text("{")
    guarded(data, judged_on)
    assert len(looked) == 1


def test_what_could_not_be_read_is_looked_at_when_it_can(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --data.max_pixels too small for any image nothing is compared, and nothing of that is kept."""
    data, judged_on = PoolConfig(path=str(root / "alone")), LabelledDataConfig(path=str(root / "split"))
    whole = guarded(data, judged_on)
    assert whole.omission is not None
    capsys.readouterr()
    assert guarded(replace(data, max_pixels=100), replace(judged_on, max_pixels=100)).omission is None
    assert "40 image(s) cannot be read" in capsys.readouterr().err
    assert guarded(data, judged_on).omission == whole.omission
    assert "cannot be read" not in capsys.readouterr().err
    broken = root / "alone" / "cat" / "20.png"
    raw = broken.read_bytes()
    for again in range(2):
        broken.write_bytes(raw if again else raw[:60] + bytes(len(raw) - 60))
        found = guarded(data, judged_on).omission
        assert found is not None
        assert ("1 image(s) cannot be read" in capsys.readouterr().err) is not bool(again)
        assert len(found.images) == len(whole.omission.images) - (not again)


def test_test_images_that_are_open_already_need_no_path(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a verdict has those of a data set on the hub."""
    data, far = PoolConfig(path=str(root / "alone")), LabelledDataConfig(path="someone/cells")
    pool = open_pool(data, SAME)[0]
    assert guard_pool(pool, data, far).omission is None
    assert "no test images are looked for in the pool: someone/cells is not on this machine" in capsys.readouterr().err
    test = open_labelled(data, LabelledDataConfig(path=str(root / "split"))).test
    found = guard_pool(pool, data, far, test=test).omission
    assert found is not None
    assert len(found.images) > 0


def test_folders_whose_files_have_equal_sizes_share_no_image(tmp_path: Path) -> None:
    """Uncompressed images of equal size and name are different ones."""
    for n, folder in enumerate(("one", "two")):
        for i in range(20):
            path = tmp_path / folder / "ab"[i % 2] / f"{i}.bmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(100 * n + i).integers(0, 256, (16, 16), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
    data = PoolConfig(path=str(tmp_path / "one"))
    pool = open_pool(data, LabelledDataConfig(path=str(tmp_path / "two")))[0]
    about = recorded_data(data, LabelledDataConfig(path=str(tmp_path / "two"))) | {"pool_fingerprint": pool.fingerprint}
    other = open_labelled(data, LabelledDataConfig(path=str(tmp_path / "two"))).test
    assert other.shared_with(pool) and not in_one_place(other, pool)
    assert seen_in_pre_training(about, other) == 0
    own = open_labelled(data, LabelledDataConfig(path=str(tmp_path / "one"))).test
    assert seen_in_pre_training(about, own) == len(own)


def test_seen_in_pre_training(root: Path) -> None:
    """A backbone remembers what was left out; other test images are looked for in its pool."""
    data = PoolConfig(path=str(root / "split"), split="train+test")
    found = guarded(data)
    about = recorded_data(data, SAME) | {"pool_fingerprint": found.images.fingerprint, "guarded": found.about}
    test = open_labelled(data, SAME).test
    assert seen_in_pre_training(about, test) == 0
    other = open_labelled(data, LabelledDataConfig(path=str(root / "alone"))).test
    shown = {int(Path(other.where(i)).stem) for i in range(len(other))}
    assert seen_in_pre_training(about, other) == len(shown & set(range(20)))
    assert seen_in_pre_training(about | {"pool_fingerprint": "changed"}, other) is None


def test_which_rule_holds() -> None:
    assert on_leak(PoolConfig(on_leak="warn"), SAME) == "warn"
    assert on_leak(PoolConfig(on_leak="warn"), LabelledDataConfig(on_leak="stop")) == "stop"
    assert on_leak(DataConfig(), SAME) == "drop"
    made = recorded_data(PoolConfig(on_leak="stop"), SAME)
    assert on_leak(own_data(made, SAME)[0], SAME) == "drop"


def test_older_backbones_and_labelled_ones_are_still_read() -> None:
    old = {"data": to_dict(DataConfig(path="digits")), "eval_data": to_dict(SAME)}
    assert "on_leak" not in old["data"]
    assert own_data(old, SAME) == (PoolConfig(), SAME)
    new = recorded_data(PoolConfig(transductive=True), SAME)
    assert own_data(new, SAME)[0] == PoolConfig(transductive=True)


def test_options_stand_only_where_they_have_an_effect() -> None:
    assert not {"on_leak", "transductive"} & set(to_dict(PredictRecipe())["data"])
    assert to_dict(SupervisedRecipe())["data"].keys() - to_dict(PredictRecipe())["data"].keys() == {"on_leak"}


def test_a_run_of_before_these_options_goes_on() -> None:
    new = {"data": to_dict(PoolConfig(on_leak="warn", transductive=True))}
    assert not differences(identity({"data": to_dict(DataConfig())}, MAERecipe), identity(new, MAERecipe))
    labelled = {"data": to_dict(GuardedConfig(on_leak="warn"))}
    assert not differences(
        identity({"data": to_dict(DataConfig())}, SupervisedRecipe), identity(labelled, SupervisedRecipe)
    )
