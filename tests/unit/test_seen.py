"""Test images in the pool, found before pre-training from rows and names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from ssl_vit.configs import DataConfig, LabelledDataConfig, PoolConfig, PredictRecipe, to_dict
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import forget
from ssl_vit.data.sources.opening import open_labelled, open_pool
from ssl_vit.exports.origin import own_data, recorded_data
from ssl_vit.leaks.seen import check_pool, seen_in_pre_training
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.methods.supervised import SupervisedRecipe
from ssl_vit.runs.identity import differences, identity

SAME = LabelledDataConfig()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Folders of two classes: alone, and with 20 training and 10 test images."""
    for n in range(30):
        for place in ("alone", "split/train" if n < 20 else "split/test"):
            path = tmp_path / place / ("cat", "dog")[n % 2] / f"{n}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((6, 6), 8 * n, np.uint8)).save(path)
    return tmp_path


def checked(data: PoolConfig, judged_on: LabelledDataConfig = SAME) -> int:
    pool, _ = open_pool(data, judged_on)
    check_pool(pool, data, judged_on)
    return len(pool)


def test_usual_pools_pass_without_a_word(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(PoolConfig()) == 1438
    assert checked(PoolConfig(path=str(root / "alone"))) == 24
    assert checked(PoolConfig(path=str(root / "split"))) == 20
    assert checked(PoolConfig(path=str(root / "split"), split="train")) == 20
    other = LabelledDataConfig(path=str(root / "split"))
    assert checked(PoolConfig(path=str(root / "alone")), other) == 30  # the same pixels in other files
    assert checked(PoolConfig(path=str(root / "alone")), LabelledDataConfig(path="owner/elsewhere")) == 30
    assert capsys.readouterr() == ("", "")


def test_pools_that_hold_the_test_split(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    split = str(root / "split")
    cases = [
        (PoolConfig(path=split, split="train+test"), SAME),
        (PoolConfig(path=split, split="test"), SAME),
        (PoolConfig(path=split), LabelledDataConfig(split="test", test_split="train")),
        (PoolConfig(path=str(root / "split" / "test")), LabelledDataConfig(path=split)),
    ]
    for data, judged_on in cases:
        with pytest.raises(UserError, match=r"holds (10 of the 10|20 of the 20) .* --data.transductive true, .*warn"):
            checked(data, judged_on)
        forget()
        capsys.readouterr()
        checked(PoolConfig(**{**to_dict(data), "on_leak": "warn"}), judged_on)
        assert "warning: the pool" in capsys.readouterr().err
        checked(PoolConfig(**{**to_dict(data), "transductive": True}), judged_on)
        assert "test images, as declared" in capsys.readouterr().err


def test_a_link_to_the_pool_is_the_pool(root: Path) -> None:
    """The pool is a part of a folder that is judged on under another name."""
    (root / "link").symlink_to(root / "split")
    with pytest.raises(UserError, match="holds 10 of the 10"):
        checked(PoolConfig(path=str(root / "link" / "test")), LabelledDataConfig(path=str(root / "split")))


def test_declared_pools_keep_the_made_test_split(capsys: pytest.CaptureFixture[str]) -> None:
    data = PoolConfig(transductive=True)
    assert checked(data) == 1797
    assert "note: pre-training on 359 of the 359 test images, as declared" in capsys.readouterr().err
    pool, note = open_pool(data, SAME)
    assert note == "every image"
    about = recorded_data(data, SAME) | {"pool_fingerprint": pool.fingerprint}
    assert seen_in_pre_training(about, open_labelled(DataConfig(), SAME).test) == 359


def test_declaring_nothing_is_told(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked(PoolConfig(path=str(root / "split"), transductive=True))
    assert "note: --data.transductive: no image that would be judged on" in capsys.readouterr().err


def test_older_backbones_and_labelled_ones_are_still_read() -> None:
    old = {"data": to_dict(DataConfig(path="digits")), "eval_data": to_dict(SAME)}
    assert "on_leak" not in old["data"]
    assert own_data(old, SAME) == (PoolConfig(), SAME)
    new = recorded_data(PoolConfig(transductive=True), SAME)
    assert own_data(new, SAME)[0] == PoolConfig(transductive=True)


def test_options_stand_only_where_they_have_an_effect() -> None:
    for recipe in (SupervisedRecipe(), PredictRecipe()):
        assert not {"on_leak", "transductive"} & set(to_dict(recipe)["data"])


def test_a_run_of_before_these_options_goes_on() -> None:
    new = {"data": to_dict(PoolConfig(on_leak="warn", transductive=True))}
    assert not differences(identity({"data": to_dict(DataConfig())}, MAERecipe), identity(new, MAERecipe))
