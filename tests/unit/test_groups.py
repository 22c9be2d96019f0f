"""Made test splits that keep groups whole, of every kind of labels, in every source."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.sources.opening import Labelled, open_labelled, open_pool
from ssl_vit.data.sources.splits import made_split

KINDS = ("class", "multilabel", "regression")
SAME = LabelledDataConfig()


def png(value: int) -> bytes:
    file = io.BytesIO()
    Image.new("L", (4, 4), value).save(file, "PNG")
    return file.getvalue()


def labels_of(kind: str, rng: np.random.Generator, n: int) -> np.ndarray:
    if kind == "class":
        return rng.integers(0, 4, n)
    return (rng.random((n, 3)) < 0.3).astype(float) if kind == "multilabel" else rng.normal(size=(n, 2))


def complete_and_apart(train: np.ndarray, test: np.ndarray, groups: np.ndarray) -> None:
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(groups)))
    assert len(train)
    assert len(test)
    assert not set(groups[train].tolist()) & set(groups[test].tolist())


@given(
    groups=st.lists(st.integers(-3, 25), min_size=2, max_size=150),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 1000),
)
def test_no_group_is_on_both_sides(groups: list[int], kind: Any, seed: int) -> None:
    group = np.array(groups)
    labels = labels_of(kind, np.random.default_rng(seed), len(groups))
    try:
        train, test = made_split(labels, kind, group)
    except UserError as error:
        if "all images are of one" in str(error):
            assert len(set(groups)) == 1
        else:  # whichever group were taken, a class would go with it
            assert "name a test split" in str(error)
            assert kind == "class"
            assert all(set(labels) - set(labels[group != g]) for g in set(groups))
        return
    complete_and_apart(train, test, group)
    if kind == "class":
        assert set(labels[train].tolist()) == set(labels.tolist())
    again = made_split(labels.copy(), kind, group.copy())
    assert np.array_equal(test, again[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("images", [1, 3, 10])
def test_about_a_fifth_of_every_stratum_where_groups_are_small(kind: Any, images: int) -> None:
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(600 // images), images)
    labels = labels_of(kind, rng, 600)
    train, test = made_split(labels, kind, group)
    complete_and_apart(train, test, group)
    assert 0.17 <= len(test) / 600 <= 0.23
    if kind == "class":
        for c in range(4):
            assert 0.13 <= (labels[test] == c).sum() / (labels == c).sum() <= 0.27
    elif kind == "multilabel":
        assert np.allclose(labels[test].mean(axis=0), labels[train].mean(axis=0), atol=0.1)
    else:
        assert abs(np.median(labels[test][:, 0]) - np.median(labels[train][:, 0])) < 0.3


@pytest.mark.parametrize("kind", KINDS)
def test_without_groups_every_kind_is_balanced(kind: Any) -> None:
    labels = labels_of(kind, np.random.default_rng(2), 1000)
    train, test = made_split(labels, kind)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(1000))
    assert 190 <= len(test) <= 210
    first = labels if labels.ndim == 1 else labels[:, 0]
    assert abs(first[test].mean() - first[train].mean()) < 0.1


def test_patients_with_one_diagnosis_each() -> None:
    group = np.repeat(np.arange(40), 5)
    labels = group % 2
    train, test = made_split(labels, "class", group)
    complete_and_apart(train, test, group)
    assert (labels[test] == 0).sum() == (labels[test] == 1).sum() == 20


def test_a_class_that_lies_in_one_group_stays_in_training() -> None:
    group = np.array([0] * 30 + [1, 2, 3, 4] * 10)
    labels = np.array([7] * 30 + [0] * 40)
    train, test = made_split(labels, "class", group)
    complete_and_apart(train, test, group)
    assert set(labels[test]) == {0}


def test_groups_that_are_classes_are_refused() -> None:
    with pytest.raises(UserError, match=r"only one of some class.*name a test split"):
        made_split(np.array([0, 0, 1, 1]), "class", np.array([5, 5, 6, 6]))
    with pytest.raises(UserError, match="all images are of one"):
        made_split(np.array([0, 0, 1, 1]), "class", np.array([5, 5, 5, 5]))


# Sources: 8 patients of 5 images, two classes


def names() -> list[tuple[str, int]]:
    return [(f"{('sick', 'well')[(p + i) % 2]}/patient{p}_{i}.png", 5 * p + i) for p in range(8) for i in range(5)]


def folder(root: Path) -> Path:
    for name, value in names():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(png(value))
    return root


def shard(root: Path) -> Path:
    root.mkdir()
    with tarfile.open(root / "all.tar", "w") as tar:
        for name, value in names():
            for ending, data in (("png", png(value)), ("cls", name.partition("/")[0].encode())):
                info = tarfile.TarInfo(name.replace("png", ending))
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return root


def csv(root: Path) -> Path:
    folder(root / "photos")
    lines = [f"photos/{n},{n.partition('/')[0]},{n[n.index('patient') :][:8]}" for n, _ in names()]
    (root / "all.csv").write_text("\n".join(["image,label,patient", *lines]))
    return root / "all.csv"


def values(images: Any) -> set[int]:
    return {int(images.read(i)[0][0, 0, 0]) for i in range(len(images))}


@pytest.mark.parametrize(
    ("make", "group"), [(folder, r"patient(\d)"), (folder, r"patient\d"), (shard, r"patient(\d)"), (csv, "patient")]
)
def test_the_pool_leaves_out_the_same_groups(make: Any, group: str, tmp_path: Path) -> None:
    data = DataConfig(path=str(make(tmp_path / "data")), group=group)
    found: Labelled = open_labelled(data, SAME)
    train, test = values(found.train), values(found.test)
    assert len(train) + len(test) == 40
    assert not {v // 5 for v in train} & {v // 5 for v in test}
    assert f"of 8 groups ({group})" in found.split
    pool, note = open_pool(data, SAME)
    assert values(pool) == train
    assert f"{len(test)} images stay out" in note
    alone = open_pool(DataConfig(path=data.path), LabelledDataConfig(group=group))[0]
    assert values(alone) == train


@pytest.mark.parametrize("make", [folder, shard])
def test_expressions_that_find_nothing(make: Any, tmp_path: Path) -> None:
    path = str(make(tmp_path / "data"))
    for group, words in ((r"person(\d)", "finds no group in"), ("patient(", "not a regular expression")):
        with pytest.raises(UserError, match=words):
            open_labelled(DataConfig(path=path, group=group), SAME)


def test_group_columns_that_are_wrong_or_empty(tmp_path: Path) -> None:
    path = csv(tmp_path / "data")
    with pytest.raises(UserError, match="did you mean patient"):
        open_labelled(DataConfig(path=str(path), group="patients"), SAME)
    path.write_text(path.read_text().replace("patient3\n", " \n", 1))
    with pytest.raises(UserError, match=r"row 15 of column patient .* has no group"):
        open_labelled(DataConfig(path=str(path), group="patient"), SAME)


def test_groups_in_both_given_splits_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for n, (name, value) in enumerate(names()):
        path = tmp_path / ("test" if n >= 32 else "train") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(value))
    open_labelled(DataConfig(path=str(tmp_path), group=r"patient(\d)"), SAME)
    said = capsys.readouterr().err
    assert "warning: 1 groups occur in the training and in the test split" in said  # images 30-34 are patient 6
    assert "3 of 8 test images" in said
    open_labelled(DataConfig(path=str(tmp_path), group=r"patient\d_\d"), SAME)
    assert "groups" not in capsys.readouterr().err


def test_the_doctor_reads_names_of_shards(tmp_path: Path) -> None:
    from ssl_vit.doctor.groups import _names

    rows = open_pool(DataConfig(path=str(shard(tmp_path / "shards"))), LabelledDataConfig())[0].rows
    assert len(_names(rows)) == len(names())
    assert all(isinstance(name, str) for name in _names(rows))
