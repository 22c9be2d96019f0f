"""Labels of tables: which columns they are, what kind, how they are numbered, and every refusal."""

from __future__ import annotations

from decimal import Decimal

import datasets
import numpy as np
import pyarrow
import pytest
from datasets import ClassLabel, Features, Sequence, Value
from datasets.table import InMemoryTable
from hypothesis import given as given_values
from hypothesis import strategies as st
from ssl_vit.configs import SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.core.notices import forget
from ssl_vit.data.sources.labels import Labels, read_labels
from ssl_vit.data.sources.part import given

Columns = dict[str, list]


def read(*splits: Columns, features: Features | None = None, column: str | None = None, target=None) -> Labels | None:
    """Labels of one table, or of a training and a test split."""
    tables = [datasets.Dataset.from_dict({"image": ["x"] * _rows(s), **s}, features=features) for s in splits]
    named = dict(zip(("train", "test"), tables, strict=False))
    return read_labels(named, SourceConfig(label_column=column, target=target), "place", ("image",))


def _rows(columns: Columns) -> int:
    return len(next(iter(columns.values()), []))


def found(*splits: Columns, **options) -> Labels:
    labels = read(*splits, **options)
    assert labels is not None
    return labels


def refusal(*splits: Columns, **options) -> str:
    with pytest.raises(UserError) as raised:
        read(*splits, **options)
    text = str(raised.value)
    assert "place" in text
    assert "\n" not in text
    return text


def decoded(labels: Labels, split: str = "train") -> list[str]:
    return [labels.names[k] for k in labels.values[split]]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([10, 9, 200, 9], ("9", "10", "200")),
        (["dog", "cat", "cat"], ("cat", "dog")),
        ([2.0, 1.0, 2.0], ("1", "2")),
        ([True, False, True], ("False", "True")),
        (["10", "9"], ("10", "9")),
    ],
)
def test_one_class_per_image(values: list, names: tuple[str, ...]) -> None:
    labels = found({"label": values})
    assert (labels.kind, labels.names) == ("class", names)
    assert labels.values["train"].dtype == np.int64
    assert decoded(labels) == [str(int(v)) if isinstance(v, float) else str(v) for v in values]


def test_named_classes_keep_their_order_even_unused() -> None:
    features = Features({"image": Value("string"), "kind": ClassLabel(names=["zebra", "ape", "cow"])})
    labels = found({"kind": [2, 0]}, features=features)
    assert labels.names == ("zebra", "ape", "cow")
    assert labels.values["train"].tolist() == [2, 0]


def test_no_column_that_looks_like_labels() -> None:
    assert read({"age": [1, 2]}) is None
    assert read({"patient": ["p", "p", "q", "q"], "index": [0, 0, 1, 1], "note": ["a", "b", "c", "d"]}) is None


@pytest.mark.parametrize(
    ("columns", "taken"),
    [
        ({"phase": ["G1", "S"] * 3, "cell": list("abcdef")}, "phase"),
        ({"phase": ["G1", "", "S", "G1", None, "S"], "area": [1.5, 2.5, 3.5, 4.5, 5.5, 6.5]}, "phase"),
        ({"phase": [1.0, float("nan"), 2.0, 1.0, 2.0, None]}, "phase"),  # as pandas writes whole numbers with gaps
        ({"area": [1.5, 2.5, 3.5, 4.5, 5.5, 6.5], "cell": list("abcdef")}, "area"),
        ({"class_name": ["G1", "S"] * 3, "patient": ["p", "q"] * 3, "same": ["x"] * 6}, "class_name"),
    ],
)
def test_the_only_column_that_can_hold_labels_is_taken_and_said(columns: Columns, taken: str) -> None:
    labels = found(columns)
    assert labels.origin == f"column {taken} of place, the only one that can hold labels"
    assert labels.kind == ("regression" if taken == "area" else "class")


def test_several_columns_that_can_hold_labels_are_listed_with_examples() -> None:
    columns: Columns = {"plate": ["p1", "p2"] * 3, "phase": ["G1", "S"] * 3, "area": [1.5, 2.5, 3.5, 4.5, 5.5, 6.5]}
    text = refusal(columns)
    assert "3 columns of place can hold labels: plate (p1, p2); phase (G1, S); area (1.5, 2.5, 3.5). Name one: " in text
    assert "--data.label_column plate" in text
    assert found(columns, column="phase").origin == "column phase of place"
    two = Features({"image": Value("string"), "a": ClassLabel(names=["x"]), "b": ClassLabel(names=["y"])})
    assert "a (x); b (y)" in refusal({"a": [0], "b": [0]}, features=two)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1, None], [0, 1, -1]),
        (["a", "", "b", "  "], [0, -1, 1, -1]),
        ([2.0, float("nan"), 1.0], [1, -1, 0]),
        ([[0, 1], None, [1]], [[1, 1], [None, None], [0, 1]]),
        ([0.5, float("nan"), None], [[0.5], [None], [None]]),
    ],
)
def test_an_empty_cell_says_that_there_is_no_label(values: list, expected: list) -> None:
    labels = found({"label": values})
    missing = -1 if labels.kind == "class" else None
    shown = [None if v != v else v for v in labels.values["train"].ravel().tolist()]
    assert shown == np.array(expected).ravel().tolist()
    assert given(labels.values["train"]).tolist() == [np.ravel(row)[0] != missing for row in expected]


@given_values(st.lists(st.sampled_from(["cat", "dog", "ape", None]), min_size=2).filter(any))
def test_labels_of_some_are_those_of_the_same_rows_alone(values: list) -> None:
    kept = [v for v in values if v is not None]
    whole, alone = found({"label": values}), found({"label": kept})
    assert whole.names == alone.names
    assert whole.values["train"][given(whole.values["train"])].tolist() == alone.values["train"].tolist()


def test_splits_share_one_numbering() -> None:
    labels = found({"label": ["dog", "cat"]}, {"label": ["ape", "dog"]})
    assert labels.names == ("ape", "cat", "dog")
    assert decoded(labels) == ["dog", "cat"]
    assert decoded(labels, "test") == ["ape", "dog"]
    numbers = found({"label": [5, 7]}, {"label": [6.0, 7.0]})
    assert numbers.names == ("5", "6", "7")
    assert decoded(numbers, "test") == ["6", "7"]
    several = found({"labels": [["b"], ["a", "b"]]}, {"labels": [["c"], []]})
    assert several.names == ("a", "b", "c")
    assert several.values["test"].tolist() == [[0, 0, 1], [0, 0, 0]]


def test_splits_that_cannot_be_compared() -> None:
    assert "disagree" in refusal({"label": ["1", "2"]}, {"label": [1, 2]})
    assert "split test" in refusal({"label": [1]}, {"other": [1]})


def test_lists_are_several_labels_per_image() -> None:
    labels = found({"labels": [[3, 1], [], [1, 1]]})
    assert (labels.kind, labels.names) == ("multilabel", ("1", "3"))
    assert labels.values["train"].tolist() == [[1, 1], [0, 0], [1, 0]]
    features = Features({"image": Value("string"), "labels": Sequence(ClassLabel(names=["b", "a"]))})
    named = found({"labels": [[1], [0, 1]]}, features=features)
    assert named.names == ("b", "a")
    assert named.values["train"].tolist() == [[0, 1], [1, 1]]


def test_lists_of_flags_are_not_lists_of_class_numbers() -> None:
    labels = found({"labels": [[0, 1, 1], [1, 0, 0], [0, 0, 0]]})
    assert (labels.kind, labels.names) == ("multilabel", ("labels[0]", "labels[1]", "labels[2]"))
    assert labels.values["train"].tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 0]]
    two = found({"labels": [[0, 1], [1, 0]]})  # as class numbers every image would have both
    assert two.names == ("labels[0]", "labels[1]")
    assert two.values["train"].tolist() == [[0, 1], [1, 0]]
    numbers = found({"labels": [[0, 1], [2, 0]]})
    assert numbers.names == ("0", "1", "2")


def test_lists_of_two_splits_are_compared_by_what_they_hold() -> None:
    labels = found({"labels": [[0.5, 0.0], [1.5, 2.0]]}, {"labels": [[100, 200]]}, target="regression")
    assert labels.values["test"].tolist() == [[100, 200]]
    assert found({"labels": [["a"], ["b", "a"]]}, {"labels": [[], []]}).values["test"].tolist() == [[0, 0], [0, 0]]


def test_numbers_that_are_written_as_text_or_decimals() -> None:
    exported = found({"labels": [Decimal("0.10"), Decimal("0.85")]})
    assert (exported.kind, exported.values["train"].tolist()) == ("regression", [[0.1], [0.85]])
    for values in (["1,5", "2", "-3,25"], [" 1.5", "2", "-3.25"]):
        assert found({"labels": values}, target="regression").values["train"].tolist() == [[1.5], [2.0], [-3.25]]
    assert found({"labels": ["4", "7"]}, target="regression").values["train"].tolist() == [[4.0], [7.0]]
    several = found({"x": ["1", "0"], "y": ["0", "1"]}, column="x,y")  # one blank cell makes text of a column
    assert (several.kind, several.values["train"].tolist()) == ("multilabel", [[1, 0], [0, 1]])
    assert found({"x": ["3.5", "2"], "y": [1, 2]}, column="x,y").kind == "regression"
    assert "no number" in refusal({"labels": ["1", "two"]}, target="regression")


def test_several_columns() -> None:
    flags = found({"red": [0, 1, 1], "round": [True, False, True]}, column="red, round")
    assert (flags.kind, flags.names) == ("multilabel", ("red", "round"))
    assert flags.values["train"].tolist() == [[0, 1], [1, 0], [1, 1]]
    numbers = found({"x": [0, 1, 2], "y": [0.5, 1.5, -3.0]}, column="x,y")
    assert (numbers.kind, numbers.names) == ("regression", ("x", "y"))
    assert numbers.values["train"].tolist() == [[0, 0.5], [1, 1.5], [2, -3]]
    forced = found({"red": [0, 1], "round": [1, 0]}, column="red,round", target="regression")
    assert forced.kind == "regression"
    assert "more than 0 and 1" in refusal({"x": [0, 2], "y": [0, 1]}, column="x,y", target="multilabel")
    assert "one class" in refusal({"x": [0, 1], "y": [0, 1]}, column="x,y", target="class")
    assert "no number" in refusal({"x": [0, 1], "y": ["a", "b"]}, column="x,y")
    assert "row 1 of column y" in refusal({"x": [0, 1], "y": [1, None]}, column="x,y")


def test_numbers_to_predict() -> None:
    for labels in (found({"target": [0.5, 2.0]}), found({"age": [1, 2]}, column="age", target="regression")):
        assert labels.kind == "regression"
        assert labels.values["train"].shape == (2, 1)
        assert labels.values["train"].dtype == np.float64
    vectors = found({"target": [[0.5, 1.0], [2.0, 3.0]]})
    assert (vectors.kind, vectors.names) == ("regression", ("target[0]", "target[1]"))
    assert vectors.values["train"].tolist() == [[0.5, 1], [2, 3]]
    assert "different lengths" in refusal({"target": [[0.5], [1.0, 2.0]]})
    assert "no number" in refusal({"label": ["a", "b"]}, target="regression")
    assert "no number" in refusal({"labels": [["a"], ["b"]]}, target="regression")


def test_text_with_several_labels() -> None:
    labels = found({"label": ["cat; dog", "dog", " ape |cat,"]}, target="multilabel")
    assert labels.names == ("ape", "cat", "dog")
    assert labels.values["train"].tolist() == [[0, 1, 1], [0, 0, 1], [1, 1, 0]]
    assert "single values" in refusal({"label": [1, 2]}, target="multilabel")


def test_the_target_option_against_the_content() -> None:
    assert "--data.target regression" in refusal({"label": [0.5, 1.5]}, target="class")
    assert "--data.target multilabel" in refusal({"label": [[1], [2]]}, target="class")
    assert found({"label": [1.0, 2.0]}, target="regression").kind == "regression"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0, -1, 1], "row 1 of column label"),
        ([0.0, -1.0], "row 1 of column label"),
        ([1.0, float("inf")], "row 1 of column label"),
        ([0.5, float("-inf")], "row 1 of column label"),
        ([[0], [1, None]], "row 1 of column label"),
        ([[0.5], [float("nan")]], "row 1 of column label"),
        ([[0.5], [float("inf")]], "row 1 of column label"),
        ([[0], [1, -1]], "row 1 of column label"),
        ([[[0]], [[1]]], "row 0 of column label"),
        ([[{"box": 1}]], "row 0 of column label"),
        ([[], []], "empty lists"),
        ([{"a": 1}], "column label"),
        ([None, None], "is empty in every row"),
        (["", " "], "is empty in every row"),
    ],
)
def test_values_that_are_no_labels(values: list, words: str) -> None:
    assert words in refusal({"label": values})


@pytest.mark.parametrize("several", [False, True])
def test_numbers_beyond_the_named_classes(several: bool) -> None:
    kind = ClassLabel(names=["a", "b"])
    features = Features({"label": Sequence(kind) if several else kind})
    for bad in (2, -1):
        values = [[0], [bad]] if several else [0, bad]
        table = InMemoryTable(pyarrow.table({"label": values}, schema=features.arrow_schema))
        with pytest.raises(UserError, match=f"row 1 .* {bad}"):
            read_labels({"all": datasets.Dataset(table)}, SourceConfig(), "place", ())


def test_contradictory_columns_are_named_with_the_row() -> None:
    agreeing = found({"label": [0, 1, 0], "class": ["a", "b", "a"]})
    assert agreeing.names == ("0", "1")
    text = refusal({"label": [0, 1, 0], "class": ["a", "b", "b"]})
    for word in ("label", "class", "row 2", "--data.label_column"):
        assert word in text
    assert found({"label": [0, 1, 0], "class": ["a", "b", "b"]}, column="class").names == ("a", "b")
    split = {"label": [0, 1], "class": ["a", "b"]}, {"label": [0, 1], "class": ["b", "a"]}
    assert "contradict" in refusal(*split)


def test_columns_that_are_named_wrongly() -> None:
    assert "did you mean label" in refusal({"label": [0, 1]}, column="lable")
    assert "twice" in refusal({"label": [0, 1]}, column="label,label")
    assert "only one of them" in refusal({"label": [0, 1]}, column="image")
    commas = found({"red, round": [0, 1]}, column="red, round")
    assert commas.names == ("0", "1")


def test_a_blank_cell_leaves_numbers_numbers() -> None:
    labels = found({"label": ["0.5", "0.7", " ", "0.5"]})
    assert labels.kind == "regression"
    assert labels.values["train"][given(labels.values["train"])].tolist() == [[0.5], [0.7], [0.5]]
    assert found({"label": ["1", "10", "", "2"]}).names == ("1", "10", "2")


def test_blanks_around_text_make_no_classes(capsys: pytest.CaptureFixture[str]) -> None:
    forget()
    labels = found({"label": ["cat", "cat ", " dog", "dog", "NA"]})
    assert labels.names == ("NA", "cat", "dog")
    assert "1 cell(s) say NA, which counts as a class" in capsys.readouterr().err
    assert found({"label": ["a", None, "b"], "category": ["x", "x", "y"]}).names == ("a", "b")
