"""Questions: shared trainings, differences judged as families, and sentences made from numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ssl_vit.configs import networks
from ssl_vit.core.errors import UserError
from ssl_vit.models.build import build_backbone, model_facts
from ssl_vit.questions.asked.positions import neighbourhood, shown
from ssl_vit.questions.asked.scale import slope_weights
from ssl_vit.questions.numbers import Contrast, Numbers, contrast, judged, log_odds, outcome
from ssl_vit.questions.numbers import weighted as numbers_weighted
from ssl_vit.questions.options import NAMES, Questions, QuestionsConfig, asked_for, check_questions
from ssl_vit.questions.page import MEASURED, read_measured, summary, write_page
from ssl_vit.questions.scope import Training
from ssl_vit.questions.table import QUESTIONS, looks, pretrainings, trainings
from ssl_vit.questions.words import comparison_rows, number, reply, told, unchanged
from ssl_vit.report.page.blocks import Fold

from made_pages import script_of
from made_questions import made_numbers, made_scope

LITERATURE, OPPOSITE = "As the literature says", "The opposite of what the literature says"
PART, NOT_SEEN = "In part as the literature says", "Not seen here"
CANNOT = "This cannot be told from these trainings"


def test_options_name_the_questions_of_the_table() -> None:
    assert tuple(QUESTIONS) == NAMES
    assert asked_for(QuestionsConfig(only="scale, data")) == ("data", "scale")


@pytest.mark.parametrize(
    ("cfg", "said"),
    [
        (QuestionsConfig(only="positionz"), "--questions.only positionz is none of data, .* did you mean positions"),
        (QuestionsConfig(only=""), "--questions.only  is none of"),
        (QuestionsConfig(budget="soon"), "--questions.budget soon is no length of time"),
    ],
)
def test_wrong_options_are_told_before_anything_is_opened(cfg: QuestionsConfig, said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_questions(Questions(questions=cfg))


def test_other_trainings_have_other_names() -> None:
    scope = made_scope(augmented=True)
    made = [*trainings(scope), *pretrainings(scope)]
    assert len({one.key for one in made}) == len(set(made)) == len(made)
    assert len({look.key for look in looks(scope)}) == len(looks(scope))


def test_questions_share_trainings() -> None:
    scope = made_scope()
    alone = {name: set(QUESTIONS[name].trainings(scope)) for name in NAMES}
    assert len(trainings(scope)) < sum(map(len, alone.values()))
    whole = {one for one in alone["bias"] if one.images == "whole"}
    assert whole and whole <= alone["data"]
    assert alone["translation"] <= alone["data"] and alone["learned"] <= alone["data"]
    varied = made_scope(augmented=True)
    assert not set(QUESTIONS["bias"].trainings(varied)) & set(QUESTIONS["data"].trainings(varied))


def test_every_training_of_a_method_begins_with_a_run_that_is_made() -> None:
    scope = made_scope()
    made = set(pretrainings(scope))
    assert all(one.pretraining in made for one in trainings(scope) if one.start != "scratch")
    for size in {(one.width, one.depth) for one in made}:  # a draw shares no run with another
        assert {one.seed for one in made if (one.width, one.depth) == size} == {0, 1, 2}


@pytest.mark.parametrize(("side", "patch"), [(8, 2), (32, 4)])
def test_a_vit_of_relative_positions_is_the_vit_but_for_them(side: int, patch: int) -> None:
    scope = made_scope(img_size=side, patch=patch)
    made = []
    for net in ("vit", "relative"):
        model = scope.model(Training(net))
        shape = model_facts(*networks.wanted(model, side, None))
        made.append(build_backbone(networks.resolve_model(model, side, shape, None), 1))
    plain, relative = (
        {name.removeprefix("vit.").removeprefix("model."): p.shape for name, p in net.named_parameters()}
        for net in made
    )
    positions = [name for name in {*plain, *relative} if name not in plain or name not in relative]
    assert sorted(positions) == [f"blocks.{i}.attn.rel_pos.relative_position_bias_table" for i in range(4)] + [
        "pos_embed"
    ]
    assert all(plain[name] == relative[name] for name in {*plain} & {*relative})
    assert made[0].img_size == made[1].img_size == side


def test_sizes_are_doubled_and_the_usual_one_is_shared() -> None:
    scope = made_scope()
    assert scope.widths() == (8, 16, 32, 64, 128) and scope.depths() == (1, 2, 4, 8, 16)
    assert scope.sized(width=64) == scope.training() and scope.sized(depth=4) == scope.sized(width=32)
    assert (scope.sized(depth=16).width, scope.sized(depth=16).depth) == (32, 16)


@pytest.mark.parametrize(
    ("estimate", "half", "adjusted", "expected", "said"),
    [
        (2.0, 1, 0.01, 1, "seen"), (2.0, 2, 0.05, 1, "not seen"), (-2.0, 1, 0.01, 1, "opposite"),
        (-2.0, 3, 0.2, 1, "not seen"), (2.0, 1, None, 1, "unknown"), (None, 1, None, 1, "unknown"),
        # Where none is expected, only an interval of small differences shows it.
        (1.0, 1.9, 0.5, 0, "seen"), (1.0, 2.1, 0.5, 0, "unknown"), (-4.0, 2, 0.01, 0, "opposite"),
        (2.0, 0.5, 0.001, 0, "seen"), (2.0, 1.5, 0.02, 0, "opposite"), (1.0, 1, None, 0, "unknown"),
    ],
)  # fmt: skip
def test_what_may_be_said_of_a_difference(
    estimate: float | None, half: float, adjusted: float | None, expected: int, said: str
) -> None:
    ends = (None, None) if estimate is None else (estimate - half, estimate + half)
    one = {"estimate": estimate, "low": ends[0], "high": ends[1], "adjusted": adjusted, "expected": expected}
    assert outcome(one | {"unit": "points"}) == said
    if expected == 0 and said == "seen":  # nobody has said what is small in this unit
        assert outcome(one | {"unit": "log odds"}) in ("unknown", "opposite")


def test_no_difference_is_no_member_of_the_family() -> None:
    """More claims beside it would make it easier to be told."""
    noise = np.random.default_rng(0).standard_normal((12, 3, 300))
    same = Contrast("same", "it", noise[0] + 0.3, expected=0)
    alone = judged([same])[0]
    among = judged([same, *(Contrast("c", f"{i}", noise[i] + 9) for i in range(1, 12))])
    assert among[0] == alone and alone["adjusted"] == alone["p"]
    assert among[1]["adjusted"] == pytest.approx(among[1]["p"] * 11, rel=1e-9) or among[1]["adjusted"] >= among[1]["p"]


def test_equal_numbers_measure_no_chance() -> None:
    found = judged([Contrast("c", "all the same", np.full((3, 50), 2.0), unit="pixels")])[0]
    assert (found["outcome"], found["p"], found["low"]) == ("unknown", None, None)


def test_a_lead_near_all_right_is_told_in_log_odds() -> None:
    """0.8 in log odds everywhere: 19 points at a half, under 2 near the top; nothing has shrunk."""
    rng, size = np.random.default_rng(0), (3, 4000)

    def share(logit: float) -> np.ndarray:
        return 100.0 * (rng.random(size) < 1 / (1 + math.exp(-logit)))

    keys = {name: [Training(name, draw=d) for d in range(3)] for name in ("a", "b", "c", "d")}
    rows = {"a": share(0.8), "b": share(0.0), "c": share(4.3), "d": share(3.5)}
    numbers = Numbers("top1", {t.key: rows[n][t.draw] for n, made in keys.items() for t in made})
    terms = [(1, keys["a"]), (-1, keys["b"]), (-1, keys["c"]), (1, keys["d"])]
    odds, points = log_odds(numbers, terms), numbers_weighted(numbers, terms)
    assert odds is not None and points is not None
    assert abs(odds.mean()) < 0.25 and points.mean() > 15
    right = rows["a"].mean() / 100
    alone = log_odds(numbers, [(1, keys["a"])])
    assert alone is not None and alone.mean() == pytest.approx(math.log(right / (1 - right)), abs=1e-12)
    # The spread of the contributions is that of the delta method: 1 / (n p (1 - p)).
    assert alone.var() / alone.size == pytest.approx(1 / (alone.size * right * (1 - right)), rel=1e-9)
    assert log_odds(numbers, [(1, [Training("lost")])]) is None


def test_a_family_is_judged_together() -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((9, 3, 300))
    shifts = (8.0, -8.0, *[0.0] * 7)
    found = judged([Contrast("c", f"{i}", 10 * noise[i] + shift) for i, shift in enumerate(shifts)])
    assert [one["outcome"] for one in found] == ["seen", "opposite", *["not seen"] * 7]
    assert all(one["adjusted"] >= one["p"] for one in found)
    assert all(one["low"] < one["estimate"] < one["high"] for one in found)
    assert abs(found[0]["estimate"] - 8) < 1.5


def test_one_draw_says_nothing_of_chance_and_a_missing_training_is_told() -> None:
    found = judged([Contrast("c", "one", np.ones((1, 5))), Contrast("c", "none", None)])
    assert [one["outcome"] for one in found] == ["unknown", "unknown"]
    assert (found[0]["estimate"], found[0]["low"]) == (1.0, None) and found[1]["estimate"] is None
    sentence = told("better", found)
    assert sentence == ("Better, in points: cannot be told for one +1.0 (no interval) and none not measured.")


def test_smaller_errors_are_better() -> None:
    one, other = Training(draw=0), Training("cct", draw=0)
    scores = {one.key: np.array([3.0, 3.0]), other.key: np.array([1.0, 1.0])}
    numbers = Numbers("mean_absolute_error", scores)
    assert contrast(numbers, "c", "n", [(1, [other]), (-1, [one])]).matrix == pytest.approx(2.0)
    assert contrast(replace(numbers, metric="top1"), "c", "n", [(1, [other]), (-1, [one])]).matrix == pytest.approx(-2)


def row(name: str, said: str, estimate: float | None = None, expected: int = 1) -> dict:
    """Whatever is likely is not seen, but its own interval lies above 0."""
    estimate = (0.04 if said == "not seen" else 1.25) if estimate is None else estimate
    return {"name": name, "outcome": "not seen" if said == "likely" else said, "estimate": estimate,
            "low": estimate - 1, "high": estimate + 1, "unit": "points", "expected": expected,
            "claim": "c", "adjusted": 0.03}  # fmt: skip


def test_a_sentence_tells_what_is_seen_what_is_not_and_the_opposite() -> None:
    rows = [row("A", "seen"), row("B", "not seen", 0.04), row("C", "opposite", -3.0), row("D", "seen", 2.0),
            row("E", "likely")]  # fmt: skip
    assert told("ahead with 20 labels", rows) == (
        "Ahead with 20 labels, in points: seen for A +1.2 (+0.2 to +2.2) and D +2.0 (+1.0 to +3.0); likely but not "
        "certain for E +1.2 (+0.2 to +2.2); not seen here for B +0.0 (-1.0 to +1.0); the "
        "opposite is seen for C -3.0 (-4.0 to -2.0)."
    )
    assert told("ahead", []) == ""
    same = [row("A", "seen", 0.5, 0), row("B", "opposite", 5.0, 0)]
    assert unchanged("no change", same) == (
        "No change, in points: none above 3 points for A +0.5 (-0.5 to +1.5); the opposite is seen for B +5.0 "
        "(+4.0 to +6.0)."
    )


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (["seen", "seen"], LITERATURE), (["opposite"], OPPOSITE), (["seen", "not seen"], PART),
        (["seen", "opposite"], PART), (["not seen"], NOT_SEEN),
        (["not seen", "likely"], "Not certain here"), (["seen", "likely"], PART),
        (["not seen", "opposite"], "Not seen here, and in part the opposite"),
        (["unknown"], "This cannot be told from these trainings"), (["unknown", "seen"], PART),
        (["unknown", "opposite"], "Not seen here, and in part the opposite"),
    ],
)  # fmt: skip
def test_how_an_answer_begins(kinds: list[str], said: str) -> None:
    assert reply([row("A", kind) for kind in kinds]) == said


def test_a_summary_names_every_question_once() -> None:
    assert summary({"data": LITERATURE, "bias": NOT_SEEN, "scale": LITERATURE}) == (
        "As the literature says: data needs and scaling. Not seen here: inductive bias."
    )


def test_the_table_of_comparisons_marks_what_is_clear() -> None:
    rows = comparison_rows([row("A", "seen"), row("B", "not seen"), row("C", "seen", 0.1, 0), row("D", "likely")],
                           {"c": "is better"}).rows  # fmt: skip
    assert [one[2].text for one in rows] == ["seen", "not seen here", "none above 3 points", "likely but not certain"]
    assert [one[2].strong for one in rows] == [True, False, False, False]


Made = tuple[Callable[[Training], float], Callable[[Training], float], Callable[[Training, str], float]]


def as_written(one: Training) -> float:
    """Shares that are right where everything is as the literature has it."""
    lead = {"vit": 0.0, "hybrid": 0.1, "cct": 0.15, "swin": 0.15, "resnet": 0.2, "relative": 0.1}[one.net]
    if one.start != "scratch":
        lead = 0.2
    base = 0.5 if one.labels < 1000 else 0.75
    lead *= 1.0 if one.labels < 1000 else 0.25
    if one.images != "whole":
        loses = {"vit": (0.0, 0.0, 0.1)}.get(one.net, (0.2, 0.2, 0.3))
        lead -= loses[("patches", "pixels", "all").index(one.images)]
    lead -= 0.3 * (one.positions == "none")
    lead += 0.06 * math.log2((one.width or 64) / 64) * (1 if one.start == "mae" else 0.3)
    lead += 0.06 * math.log2((one.depth or 4) / 4) * (1 if one.start == "mae" else 0.3)
    if one.net == "relative":
        lead = 0.0
    return base + lead


def changes(one: Training) -> float:
    return (0.8 if one.net == "vit" else 0.3) * (0.9 if one.labels else 1.0)


def reads(one: Training, name: str) -> float:
    far = {"mae": 1.0, "dino": 2.0, "lejepa": 2.0}.get(one.start, 1.5)
    return far if name == "distance" else -far


def alike(one: Training) -> float:
    return 0.6


OTHERWISE: dict[str, Made] = {
    "data": (
        lambda one: 0.7 if one.net == "vit" and one.start == "scratch" else 0.5 + 0.15 * (one.labels > 1000),
        changes, reads,
    ),
    "bias": (lambda one: 0.9 - 0.4 * (one.net == "vit") * (one.images == "patches"), changes, reads),
    "translation": (as_written, lambda one: 0.3 if one.net == "vit" else 0.8, reads),
    "positions": (
        lambda one: {"none": 0.9, "learnable": 0.7}.get(one.positions, 0.5) if one.net == "vit" else 0.5, changes, reads
    ),
    "learned": (as_written, changes, lambda one, name: -reads(one, name)),
    "scale": (
        lambda one: 0.6 - 0.05 * (math.log2((one.width or 64) / 64) + math.log2((one.depth or 4) / 4))
        * (2 if one.start == "mae" else 1),
        changes, reads,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_question_is_answered_as_the_literature_says_where_it_is_so(name: str) -> None:
    scope, question = made_scope((name,)), QUESTIONS[name]
    finding = question.judge(scope, made_numbers(scope, as_written, changes, reads))
    assert reply(question.stands_on(finding)) == LITERATURE, finding["comparisons"]
    assert ": seen for " in question.answer(finding)


@pytest.mark.parametrize("name", NAMES)
def test_the_opposite_is_told_where_it_is_so(name: str) -> None:
    scope, question = made_scope((name,)), QUESTIONS[name]
    finding = question.judge(scope, made_numbers(scope, *OTHERWISE[name]))
    assert reply(question.stands_on(finding)) == OPPOSITE, finding["comparisons"]
    assert "the opposite is seen for " in question.answer(finding)


def test_a_lead_that_is_none_cannot_shrink() -> None:
    scope, question = made_scope(("data",)), QUESTIONS["data"]
    finding = question.judge(scope, made_numbers(scope, *OTHERWISE["data"]))
    behind = {one["name"] for one in finding["comparisons"] if one["claim"] == "few" and one["estimate"] <= 0}
    shrinks = {one["name"]: one["outcome"] for one in finding["comparisons"] if one["claim"] == "shrinks"}
    assert behind and {shrinks[name] for name in behind} == {"unknown"}
    assert "that lead smaller" not in question.answer(finding)


@pytest.mark.parametrize(("metric", "units"), [("top1", {"log odds"}), ("balanced", {"log odds"}), ("macro_f1", set())])
def test_whether_a_lead_shrinks_is_asked_in_log_odds_or_not_at_all(metric: str, units: set[str]) -> None:
    """Of points it would be said of every lead near 100 %."""
    scope, question = made_scope(("data",)), QUESTIONS["data"]
    numbers = replace(made_numbers(scope, as_written, changes, reads), metric=metric)
    finding = question.judge(scope, numbers)
    assert {one["unit"] for one in finding["comparisons"] if one["claim"] == "shrinks"} == units
    assert reply(question.stands_on(finding)) == LITERATURE and question.figures(finding)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_seen_where_all_are_alike(name: str) -> None:
    scope, question = made_scope((name,)), QUESTIONS[name]
    numbers = made_numbers(scope, alike, lambda one: 0.5, lambda one, what: 1.0)
    finding = question.judge(scope, numbers)
    assert reply(question.stands_on(finding)) in (NOT_SEEN, "Not certain here", CANNOT, PART), finding["comparisons"]
    if not any(one["expected"] == 0 and one["outcome"] == "seen" for one in question.stands_on(finding)):
        assert reply(question.stands_on(finding)) != PART  # nothing was learnt
    assert "not seen here for " in question.answer(finding)


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_its_sentence_and_numbers_survive_json(name: str) -> None:
    scope, question = made_scope((name,)), QUESTIONS[name]
    finding = question.judge(scope, made_numbers(scope, as_written, changes, reads))
    again = json.loads(json.dumps(finding))
    assert again == finding
    figures = question.figures(again)
    assert figures and len({figure.name for figure in figures}) == len(figures)
    assert all(figure.panels and figure.sentence.strip().endswith(".") for figure in figures)
    assert {one["claim"] for one in finding["comparisons"]} <= set(question.claims)


@pytest.mark.parametrize("name", NAMES)
def test_a_question_is_answered_without_a_network_that_failed(name: str) -> None:
    scope, question = made_scope((name,)), QUESTIONS[name]
    numbers = made_numbers(scope, as_written, changes, reads)
    lost = {key: value for key, value in numbers.scores.items() if "resnet" not in key and "-dino-" not in key}
    seen = {key: value for key, value in numbers.looks.items() if "resnet" not in key and "-dino-" not in key}
    finding = question.judge(scope, replace(numbers, scores=lost, looks=seen))
    assert question.figures(finding)


def test_a_slope_is_the_gain_by_a_doubling() -> None:
    sizes = (8, 16, 32, 64, 128)
    weights = slope_weights(sizes)
    assert math.fsum(weights) == pytest.approx(0, abs=1e-12)
    assert math.fsum(w * (5 + 3 * math.log2(s)) for w, s in zip(weights, sizes, strict=True)) == pytest.approx(3)


def test_neighbours_that_are_alike_are_told_from_all_that_are() -> None:
    places = shown(4)
    assert places == [(r, c) for r in range(4) for c in range(4)] and len(shown(14)) == 16
    alike_all = np.ones((16, 4, 4)).tolist()
    near = [[[float(max(abs(i - r), abs(j - c)) <= 1) for j in range(4)] for i in range(4)] for r, c in places]
    assert neighbourhood(alike_all, places) == 0.0
    assert neighbourhood(near, places) == 1.0


def measured() -> dict:
    scope = made_scope()
    numbers = made_numbers(scope, as_written, changes, reads)
    about = {
        "data": "digits", "test_images": 359, "metric": "top1", "labels": list(scope.labels), "draws": 3, "steps": 100,
        "batch": 32, "rates": {"labels": 2e-3, "mae": 2e-3},
        "networks": [{"net": "vit", "model": "vit_micro", "img_size": 8, "parameters": 200_000,
                      "flops_per_image": 2e7}],
        "failed": {"pretrain-dino-1": "DINO has collapsed"}, "command": "ssl-vit questions", "commit": "abc",
        "versions": "torch 2", "hardware": "cpu", "seconds": 600.0, "sessions": 2, "jobs": 2,
        "notes": ["no 300 labels"],
        "plan": {"expected": 620.0, "budget": 720.0, "lines": [{"what": "training", "units": 3, "seconds": 2.0}]},
    }  # fmt: skip
    return {"about": about, "questions": {name: QUESTIONS[name].judge(scope, numbers) for name in NAMES}}


def test_the_page_is_drawn_from_measured_numbers_alone_and_again_alike(tmp_path: Path) -> None:
    (tmp_path / MEASURED).write_text(json.dumps(measured()))
    page = write_page(tmp_path)
    text, plain = ((tmp_path / name).read_text() for name in ("questions.html", "questions.md"))
    pictures = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    for question in QUESTIONS.values():
        assert question.title in text and f"## {question.title}" in plain
    assert page.sentence.startswith("As the literature says: data needs, ")
    assert "<script" not in text and 'src="http' not in text and "url(http" not in text
    assert "DINO has collapsed" in text
    assert plain.startswith("# Questions about Vision Transformers: digits\n")
    assert "\n```\nssl-vit questions\n```\n" in plain  # the command, as it was typed
    named = {word.partition(")")[0] for word in plain.split("](figures/")[1:]}
    assert named == set(pictures) and all(one.startswith(b"\x89PNG") for one in pictures.values())
    folds = [block for section in page.sections for block in section.blocks if isinstance(block, Fold)]
    assert sum(fold.title.endswith("comparisons") for fold in folds) == len(QUESTIONS)
    write_page(tmp_path)
    assert (text, plain) == tuple((tmp_path / name).read_text() for name in ("questions.html", "questions.md"))
    assert pictures == {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}


def test_folders_without_finished_numbers_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no finished questions"):
        read_measured(tmp_path)
    (tmp_path / MEASURED).write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        read_measured(tmp_path)


def test_a_made_page_is_put_among_the_documentation(tmp_path: Path) -> None:
    script = script_of("make_questions")
    (run := tmp_path / "run").mkdir()
    (docs := tmp_path / "docs").mkdir()
    own = (script.DOCS / "questions.md").read_text()
    (docs / "questions.md").write_text(own)
    assert script.listing(docs) == "None yet." and own.endswith(f"{script.MARK}\n\n{script.listing()}\n")
    (run / MEASURED).write_text(json.dumps(measured()))
    to = script.add(run, "digits", docs)
    plain = (to / "questions.md").read_text()
    assert {path.name for path in (to / "figures").iterdir()} == {
        word.partition(")")[0] for word in plain.split("](figures/")[1:]
    }
    listed = (docs / "questions.md").read_text()
    assert listed.startswith(own.partition(script.MARK)[0]) and "None yet." not in listed
    assert (
        "[digits](questions/digits/questions.md), 1,438 training labels | 10 min | As the literature says: " in listed
    )
    assert json.loads((to / MEASURED).read_text()) == measured()
    with pytest.raises(ValueError, match="is no name for a folder"):
        script.add(run, "../elsewhere", docs)


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [(0.031, "points of accuracy", "+0.0"), (3.14, "points", "+3.1"), (0.001234, "", "+0.0012"),
     (-1e-17, "", "+0.000000"), (-1.44e-9, "units of the labels", "-1.4e-09"), (12.3, "units of the labels", "+12"),
     (0.0, "", "+0")],
)  # fmt: skip
def test_a_number_has_the_digits_that_its_unit_deserves(value: float, unit: str, words: str) -> None:
    assert number(value, unit) == words
