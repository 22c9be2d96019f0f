"""A sweep without training: which runs it is, what it refuses, in which order it goes, and what its table says."""

from __future__ import annotations

import csv
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.core.signals import REQUEUE
from ssl_vit.core.started import module_of
from ssl_vit.engines.driver import AGAIN
from ssl_vit.engines.unit import LOST, Unit
from ssl_vit.runs import lock
from ssl_vit.runs.identity import digest
from ssl_vit.script import check_words
from ssl_vit.sweep import places
from ssl_vit.sweep.course import Course, next_stage
from ssl_vit.sweep.outcome import _without, outcome
from ssl_vit.sweep.plan import Asked, Child, Plan, make_plan, remember, split


def planned(out: Path, *over: str, words: tuple[str, ...] = (), command: str = "mae", **more: Any) -> Plan:
    return make_plan(Asked(command, words, over, out, **more))


def test_every_combination_with_every_seed_is_an_ordinary_command(tmp_path: Path) -> None:
    plan = planned(tmp_path, "optim.base_lr=1e-3,2e-3", "mae.mask_ratio=0.5,0.75", words=("--seed", "4"), seeds=2)
    assert len(plan.children) == 8
    assert plan.settings[0] == "optim.base_lr=0.001, mae.mask_ratio=0.5"
    assert {child.seed for child in plan.children} == {4, 5}
    assert len({child.folder for child in plan.children}) == 8
    for child in plan.children:
        assert child.words[0] == "mae"
        assert child.config.seed == child.seed
        assert child.config.run.dir == str(child.folder)
        check_words(child.words)
    last = plan.children[-1].config
    assert (last.optim.base_lr, last.mae.mask_ratio) == (0.002, 0.75)
    assert plan.children[0].folder == tmp_path / "runs" / "optim.base_lr=0.001+mae.mask_ratio=0.5-seed-4"


def test_without_varied_options_there_is_one_setting(tmp_path: Path) -> None:
    plan = planned(tmp_path, seeds=3)
    assert [child.folder.name for child in plan.children] == ["seed-0", "seed-1", "seed-2"]
    assert plan.settings == ("",)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("1,2", ["1", "2"]),
        ("[0.2,1],[0.5,1]", ["[0.2,1]", "[0.5,1]"]),
        ('{"a":[1,2]},{"a":[3]}', ['{"a":[1,2]}', '{"a":[3]}']),
        ("'a,b',c", ["'a,b'", "c"]),
        ("a, b", ["a", "b"]),
    ],
)
def test_commas_inside_brackets_belong_to_a_value(values: str, expected: list[str]) -> None:
    assert split(values) == expected


def test_odd_values_make_folders_that_can_be_typed(tmp_path: Path) -> None:
    plan = planned(tmp_path, "augment.crop_scale=[0.2,1],[0.5,1]", "data.path=my images/a,my images/b")
    names = [child.folder.name for child in plan.children]
    assert len(set(names)) == 4
    assert all(
        set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+=-") for name in names
    )
    assert plan.children[0].config.augment.crop_scale == (0.2, 1.0)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"command": "mea"}, "mea is no command; a sweep is over mae.*did you mean mae"),
        ({"command": "knn"}, "knn trains no network"),
        ({"over": ("optim.base_rl=1",)}, r"--over optim.base_rl: mae has no such option; did you mean optim.base_lr"),
        ({"over": ("crops.local_crops=1",)}, "--over crops.local_crops: mae has no such option"),
        ({"over": ("optim.base_lr=1e-3,fast",)}, "--optim.base_lr: expected a number, got fast"),
        ({"over": ("optim.base_lr=1e-3,-1",)}, "--optim.base_lr -1 must be positive"),
        ({"over": ("optim.base_lr",)}, r"names no values; write --over optim.base_lr=VALUE,VALUE"),
        ({"over": ("optim.base_lr=1e-3,",)}, "--optim.base_lr"),
        ({"over": ("optim.base_lr=1e-3,0.001",)}, "names one value twice"),
        ({"over": ("seed=1,2",)}, "--seeds says how many"),
        ({"over": ("run.dir=a,b",)}, "--out names the folder"),
        ({"over": ("fit.epochs=1", "fit.epochs=2")}, "given twice"),
        ({"over": ("fit.epochs=1,2",), "words": ("--fit.epochs", "3")}, "--fit.epochs is given and varied"),
        ({"words": ("--run.dir", "x")}, "--run.dir is not for typing: --out names"),
        ({"words": ("--fit.epoch", "3")}, "unknown option --fit.epoch; did you mean --fit.epochs"),
        ({"words": ("--max_time", "3h")}, "--max_time is not for a sweep: a sweep starts again what was ended so; end"),
        ({"over": ("fit.max_time=1h,2h",)}, "--over fit.max_time: a sweep starts again"),
        ({"words": ("--dry_run",)}, "--dry_run is not for typing: it makes no run"),
        ({"over": ("dry_run=true,false",)}, "--over dry_run: it makes no run"),
        ({"seeds": 0}, "--seeds 0 must be at least 1"),
        ({"command": "supervised", "judge": "knn"}, "runs of supervised judge themselves"),
        ({"over": ("preset=px32,px23",)}, "--preset px23 is none of .*did you mean px32"),
    ],
)
def test_mistakes_are_told_before_anything_is_started(more: dict[str, Any], said: str, tmp_path: Path) -> None:
    asked = {"command": "mae", "words": (), "over": (), "out": tmp_path / "out", **more}
    with pytest.raises(UserError, match=said):
        make_plan(Asked(**asked))
    assert not (tmp_path / "out").exists()


def test_several_settings_are_judged_on_held_out_labels(tmp_path: Path) -> None:
    several = planned(tmp_path, "optim.base_lr=1e-3,2e-3", judge="knn")
    assert several.held_out
    assert several.children[0].judged_by == (
        "knn", f"--backbone={several.children[0].folder}", "--eval.held_out=true"
    )  # fmt: skip
    check_words(["knn", "--backbone=x", "--eval.held_out=true"])
    assert not planned(tmp_path, judge="knn", seeds=3).held_out  # nothing is chosen among seeds
    assert not planned(tmp_path, "optim.base_lr=1e-3,2e-3", judge="knn", on_test=True).held_out
    assert not planned(tmp_path, "optim.base_lr=1e-3,2e-3").held_out  # nothing judges
    labelled = planned(tmp_path, "optim.base_lr=1e-3,2e-3", command="supervised")
    assert all(child.config.eval.held_out for child in labelled.children)
    typed = planned(tmp_path, "optim.base_lr=1e-3,2e-3", command="supervised", words=("--eval.held_out", "false"))
    assert not any(child.config.eval.held_out for child in typed.children)


def test_a_folder_is_one_sweep_which_may_grow(tmp_path: Path) -> None:
    def begun(*over: str, **more: Any) -> None:
        remember(planned(tmp_path / "s", *over, **more))

    (tmp_path / "s").mkdir()
    begun("optim.base_lr=1e-3,2e-3")
    begun("optim.base_lr=1e-3,2e-3,4e-3", seeds=3, judge="knn", words=("--fit.epochs", "9"))
    with pytest.raises(UserError, match=r"holds another sweep \(options.fit.batch_size None -> 7\)"):
        begun("optim.base_lr=1e-3,2e-3", words=("--fit.batch_size", "7"))
    with pytest.raises(UserError, match="holds another sweep"):
        begun("mae.mask_ratio=0.5")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "holiday.jpg").touch()
    with pytest.raises(UserError, match="is not empty and holds no sweep"):
        remember(planned(tmp_path / "other"))


def test_labelled_runs_of_one_setting_do_not_become_part_of_several(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    remember(planned(tmp_path / "s", "optim.base_lr=1e-3", command="supervised"))
    several = "optim.base_lr=1e-3,2e-3"
    with pytest.raises(UserError, match=r"judged on the test images; these .* on held-out labels, .* type --on_test"):
        remember(planned(tmp_path / "s", several, command="supervised"))
    remember(planned(tmp_path / "s", several, command="supervised", on_test=True))
    (tmp_path / "t").mkdir()
    remember(planned(tmp_path / "t", several, command="supervised"))
    with pytest.raises(UserError, match=r"on held-out labels; these .* --eval\.held_out true, and no --on_test"):
        remember(planned(tmp_path / "t", several, command="supervised", on_test=True))
    remember(planned(tmp_path / "t", "optim.base_lr=1e-3", command="supervised", words=("--eval.held_out", "true")))


def finish(child: Child, top1: float = 80.0) -> None:
    """Leaves what a training leaves, and what judges it where it is judged."""
    folder = child.folder
    (folder / "backbone").mkdir(parents=True, exist_ok=True)
    epochs = child.config.fit.epochs or 1.0
    (folder / "config.yaml").write_text(f"data: {{path: cells}}\nfit: {{epochs: {epochs}, min_steps: 0}}\n")
    (folder / "environment.json").write_text('{"script": "mae"}')
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 10 * epochs, "epoch": epochs, "loss": 0.5}) + "\n")
    for name in ("config.json", "model.safetensors"):
        (folder / "backbone" / name).write_text("")
    os.utime(folder / "backbone" / "model.safetensors", (0, 0))
    if child.result is not None:
        split = "a fifth of the 100 given labels" if "held-out" in child.result.name else "a fifth"
        protocol = {"kind": "class", "metric": "top1", "test": {"split": split, "fingerprint": "t"}}
        rows = [{"method": "MAE", "top1": top1, "images": 9}, {"method": "raw pixels", "top1": 50.0, "images": 9}]
        child.result.parent.mkdir(exist_ok=True)
        content = {"method": "knn", "rows": rows, "protocol": protocol, "protocol_hash": digest(protocol),
                   "labels_used": 80, "draw": None, "seed": 0, "data": {}}  # fmt: skip
        child.result.write_text(json.dumps(content))


class Scripted:
    """An engine whose commands do what a test says, at once."""

    pause = 0.0

    def __init__(self, does: Callable[[tuple[str, ...]], int], at_once: int = 1) -> None:
        self.does, self.at_once, self.started = does, at_once, list[tuple[str, ...]]()
        self.most, self.alive = 0, 0

    def start(self, unit: Unit) -> ScriptedJob:
        words = unit.run.args[0]
        self.started.append(words)
        unit.log.parent.mkdir(exist_ok=True)
        self.alive += 1
        self.most = max(self.most, self.alive)
        return ScriptedJob(self, words)

    def close(self) -> None:
        pass


class ScriptedJob:
    def __init__(self, place: Scripted, words: tuple[str, ...]) -> None:
        self.place, self.words, self.looked, self.code, self.told = place, words, 0, 0, False

    def status(self) -> int | None:
        self.looked += 1
        if self.looked == 2:
            self.place.alive -= 1
            self.code = REQUEUE if self.told else self.place.does(self.words)
        return self.code if self.looked > 1 else None

    def stop(self) -> None:
        self.told = True


def doing(plan: Plan, unless: Callable[[Child], int | None] = lambda child: None) -> Callable[[tuple[str, ...]], int]:
    """What commands do: their work, or what a test says instead."""

    def does(words: tuple[str, ...]) -> int:
        child = next(one for one in plan.children if words in (one.words, one.judged_by))
        told = unless(child)
        if told is None:
            finish(child)
            if words == child.words and child.result is not None:
                child.result.unlink()
        return told or 0

    return does


def test_all_runs_are_trained_and_judged_and_none_twice(tmp_path: Path) -> None:
    plan = planned(tmp_path, "optim.base_lr=1e-3,2e-3", seeds=2, judge="knn")
    place, said = Scripted(doing(plan), 2), list[str]()
    Course(plan, place, said.append).run()
    wanted = [words for child in plan.children for words in (child.words, child.judged_by)]
    assert sorted(place.started) == sorted(wanted)
    assert place.most == 2
    again = Scripted(doing(plan))
    Course(plan, again, said.append).run()
    assert again.started == []
    assert said[-1] == "4 of 4 runs are finished already"
    longer = planned(tmp_path, "optim.base_lr=1e-3,2e-3", seeds=3, judge="knn", words=("--fit.epochs", "1"))
    more = Scripted(doing(longer))
    Course(longer, more, said.append).run()
    assert len(more.started) == 4  # two new ones
    longest = planned(tmp_path, "optim.base_lr=1e-3,2e-3", seeds=3, judge="knn", words=("--fit.epochs", "2"))
    assert all(next_stage(child) == child.words for child in longest.children)


def test_a_failing_run_does_not_end_the_others_and_is_listed(tmp_path: Path) -> None:
    plan = planned(tmp_path, "optim.base_lr=1e-3,2e-3,4e-3", judge="knn")
    bad = plan.children[1]

    def unless(child: Child) -> int | None:
        if child == bad:
            log = tmp_path / "logs" / f"{child.folder.name}.log"
            log.write_text("something\nerror: the loss stopped being a finite number\nW0 a launcher's last words\n")
            return 1
        return None

    course = Course(plan, Scripted(doing(plan, unless)), lambda line: None)
    course.run()
    assert list(course.failed) == [bad]
    assert course.failed[bad].startswith("the loss stopped being a finite number (log: ")
    assert all(not next_stage(child) for child in plan.children if child != bad)
    found = outcome(plan, course.failed).written
    assert [row[1].text for row in found.shown.rows] == ["1 of 1", "0 of 1", "1 of 1"]
    assert any("failed: optim.base_lr=0.002, seed 0" in note for note in found.notes)


def test_what_ends_well_and_leaves_nothing_is_no_endless_loop(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    place = Scripted(lambda words: 0)
    course = Course(plan, place, lambda line: None)
    course.run()
    assert "without leaving" in course.failed[plan.children[0]]
    assert len(place.started) == 1 + AGAIN


def test_a_run_whose_process_is_lost_is_begun_again_so_often_and_the_finished_never(tmp_path: Path) -> None:
    plan, said = planned(tmp_path, seeds=3), list[str]()
    _, lost, hopeless = plan.children
    tries = {lost: iter([LOST] * AGAIN), hopeless: iter([LOST] * (AGAIN + 1))}
    place = Scripted(doing(plan, lambda child: next(tries.get(child, iter([])), None)), 2)
    course = Course(plan, place, said.append)
    course.run()
    assert [place.started.count(child.words) for child in plan.children] == [1, 1 + AGAIN, 1 + AGAIN]
    assert list(course.failed) == [hopeless]
    assert course.failed[hopeless].startswith("its process was lost (SIGKILL; where memory does not suffice")
    assert sum(f"begun again ({AGAIN} of {AGAIN})" in line for line in said) == 2


def test_a_run_that_was_stopped_goes_on_as_long_as_it_saves_more(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    (child,) = plan.children
    steps = iter([3, 6, None])

    def does(words: tuple[str, ...]) -> int:
        step = next(steps)
        if step is None:
            finish(child)
            return 0
        (child.folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        (child.folder / "checkpoints" / f"step_{step:09d}.pt").touch()
        (child.folder / "config.yaml").write_text("a: 1")
        (child.folder / "environment.json").write_text('{"script": "mae"}')
        return REQUEUE

    place = Scripted(does)
    course = Course(plan, place, lambda line: None)
    course.run()
    assert (len(place.started), course.failed) == (3, {})
    for path in (child.folder / "backbone").iterdir():
        path.unlink()
    stuck = Course(plan, Scripted(lambda words: REQUEUE), lambda line: None)
    stuck.run()
    assert stuck.failed[child].startswith(f"ended with status {REQUEUE}")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, REQUEUE), (signal.SIGINT, 130)])
def test_a_signal_reaches_what_runs_and_starts_nothing_more(number: int, status: int, tmp_path: Path) -> None:
    plan = planned(tmp_path, seeds=3)

    class Stopped(Scripted):
        def start(self, unit: Unit) -> ScriptedJob:
            job = super().start(unit)
            os.kill(os.getpid(), number)
            return job

    place, said = Stopped(doing(plan)), list[str]()
    with pytest.raises(SystemExit) as left:
        Course(plan, place, said.append).run()
    assert left.value.code == status
    assert len(place.started) == 1
    assert "the same command goes on" in said[-1]


def test_what_a_killed_sweep_left_running_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(tmp_path, seeds=2)
    first, second = plan.children
    looks = iter([True, True, True])

    def holder(folder: Path, *, writes: bool = False) -> tuple[lock.Owner, bool] | None:
        if folder != first.folder or not next(looks, False):
            if folder == first.folder and not (first.folder / "backbone").exists():
                finish(first)
            return None
        return replace(lock._this_process(), pid=7), True

    monkeypatch.setattr("ssl_vit.engines.driver.lock.holder", holder)
    place, said = Scripted(doing(plan)), list[str]()
    Course(plan, place, said.append).run()
    assert place.started == [second.words]
    assert sum("waiting for process 7" in line for line in said) == 1


def test_who_was_left_behind_and_takes_its_directory_late_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(tmp_path)
    (child,) = plan.children
    asked: list[int] = []

    def holder(folder: Path, *, writes: bool = False) -> tuple[lock.Owner, bool] | None:
        asked.append(1)
        if len(asked) == 3:
            finish(child)
        return (lock._this_process(), True) if len(asked) == 2 else None  # after the start, and not before

    monkeypatch.setattr("ssl_vit.engines.driver.lock.holder", holder)
    place = Scripted(lambda words: 1)  # "is in use by process ..."
    course = Course(plan, place, lambda line: None)
    course.run()
    assert (len(place.started), course.failed) == (1, {})


def judged(plan: Plan, values: dict[str, list[float]]) -> None:
    for child in plan.children:
        finish(child, values[child.setting][child.seed])


@pytest.mark.parametrize("typed", [["--eval.held_out", "true"], ["--eval.held_out=true"], []])
def test_options_are_taken_out_of_a_command_with_their_values(typed: list[str]) -> None:
    words = ["images", *typed, "--seed=1", "--run.dir", "here", "--fit.epochs", "3"]
    assert _without(words, ("--eval.held_out", "--run.dir")) == ["images", "--seed=1", "--fit.epochs", "3"]


def test_the_table_has_means_over_seeds_and_says_what_was_chosen_by_what(tmp_path: Path) -> None:
    plan = planned(tmp_path, "optim.base_lr=1e-3,2e-3", seeds=3, judge="knn")
    judged(plan, {"optim.base_lr=0.001": [80.0, 81.0, 82.0], "optim.base_lr=0.002": [85.0, 86.0, 87.2]})
    written, said = outcome(plan, {})
    assert written.shown.headings == ("setting", "runs", "last loss", "knn top-1 %, 80 labels, held out")
    assert written.shown.rows[0][3].text == "81.0 ± 1.0 (3)"
    assert written.shown.rows[0][3].minor == ("78.5 to 83.5",)
    assert said[0].startswith(
        "best by knn top-1 %, 80 labels, held out: optim.base_lr=0.002, 86.1 ± 1.1 (3); +5.1 (95 %"
    )
    assert "chosen on held-out labels" in said[1]
    assert sum("on the test images, once: " in line and "held_out" not in line for line in said) == 3
    assert any("beside them, knn" in note and "raw pixels 50.0" in note for note in written.notes)
    for name in ("t.csv", "t.md", "t.tex"):
        written.write(tmp_path / name)
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["setting"], row["judged_on"], float(row["mean"]), row["n"]) for row in rows] == [
        ("optim.base_lr=0.001", "held out", 81.0, "3"),
        ("optim.base_lr=0.002", "held out", pytest.approx(86.0666, 1e-4), "3"),
    ]  # fmt: skip


def test_what_was_judged_by_other_options_is_not_compared(tmp_path: Path) -> None:
    plan = planned(tmp_path, "optim.base_lr=1e-3,2e-3", judge="knn")
    judged(plan, {"optim.base_lr=0.001": [80.0], "optim.base_lr=0.002": [85.0]})
    assert outcome(plan, {}).said[0].startswith("best by knn")
    by_hand = plan.children[0].result
    assert by_hand is not None
    result = json.loads(by_hand.read_text())
    result["protocol"]["knn"] = {"k": [7]}
    by_hand.write_text(json.dumps(result | {"protocol_hash": digest(result["protocol"])}))
    written, said = outcome(plan, {})
    assert not said
    assert [[cell.text for cell in row[3:]] for row in written.shown.rows] == [["80.0 (1)", "-"], ["-", "85.0 (1)"]]
    (note,) = (note for note in written.notes if "judged by different options" in note)
    assert "optim.base_lr=0.001 / optim.base_lr=0.002" in note


def test_networks_of_several_poolings_are_compared(tmp_path: Path) -> None:
    """A protocol names the pooling of its network, which a sweep may vary."""
    plan = planned(tmp_path, "model.pool=cls,mean", judge="knn")
    judged(plan, {"model.pool=cls": [80.0], "model.pool=mean": [85.0]})
    for child in plan.children:
        assert child.result is not None
        result = json.loads(child.result.read_text())
        protocol = result["protocol"] | {"pool": child.config.model.pool, "view": {"input": 8}}
        child.result.write_text(json.dumps(result | {"protocol": protocol, "protocol_hash": digest(protocol)}))
    written, said = outcome(plan, {})
    assert said[0].startswith("best by knn") and "model.pool=mean" in said[0]
    assert not any("judged by different options" in note for note in written.notes)


def test_failed_runs_and_results_of_shorter_ones_are_in_no_mean(tmp_path: Path) -> None:
    plan = planned(tmp_path, "optim.base_lr=1e-3,2e-3", seeds=2, judge="knn")
    judged(plan, {"optim.base_lr=0.001": [10.0, 81.0], "optim.base_lr=0.002": [85.0, 20.0]})
    old = plan.children[3].result
    assert old is not None
    old.write_text(json.dumps(json.loads(old.read_text()) | {"backbone": {"weights": "of fewer epochs"}}))
    written, said = outcome(plan, {plan.children[0]: "no memory"})
    assert [row[3].text for row in written.shown.rows] == ["81.0 (1)", "85.0 (1)"], "one of each setting is left"
    assert "no seed in common" in said[0]


@pytest.mark.parametrize("command", ["mae", "supervised"])
def test_a_run_that_was_made_longer_and_killed_before_its_end_is_not_done(command: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, "optim.base_lr=1e-3", command=command, words=("--fit.epochs=20",))
    (child,) = plan.children
    finish(child)
    (child.folder / "environment.json").write_text(json.dumps({"script": command}))
    result = child.folder / "results" / f"{command}.json"
    result.parent.mkdir(exist_ok=True)
    for steps, left in ((200, ()), (100, child.words)):  # of all, and of half as many epochs
        (child.folder / "backbone" / "config.json").write_text(json.dumps({"ssl_vit": {"step": steps}}))
        result.write_text(json.dumps({"rows": [{"steps": steps}]}))
        assert next_stage(child) == left


def test_a_difference_within_chance_is_called_none(tmp_path: Path) -> None:
    plan = planned(tmp_path, "optim.base_lr=1e-3,2e-3", seeds=3, judge="knn")
    judged(plan, {"optim.base_lr=0.001": [80.0, 86.0, 82.0], "optim.base_lr=0.002": [85.0, 81.0, 83.0]})
    assert "no clear difference: +" in outcome(plan, {}).said[0]


def test_test_images_are_called_test_images(tmp_path: Path) -> None:
    plan = planned(tmp_path, "optim.base_lr=1e-3,2e-3", judge="knn", on_test=True)
    judged(plan, {"optim.base_lr=0.001": [80.0], "optim.base_lr=0.002": [85.0]})
    written, said = outcome(plan, {})
    assert written.shown.headings[3].endswith("test images")
    assert "+5.0, without an interval" in said[0]
    assert "selection on the test split" in said[1]


def test_runs_that_nothing_judged_have_a_loss_alone(tmp_path: Path) -> None:
    plan = planned(tmp_path, "optim.base_lr=1e-3,2e-3")
    for child in plan.children:
        finish(child)
    written, said = outcome(plan, {})
    assert [[cell.text for cell in row] for row in written.shown.rows] == [
        ["optim.base_lr=0.001", "1 of 1", "0.5"], ["optim.base_lr=0.002", "1 of 1", "0.5"]
    ]  # fmt: skip
    assert "--judge knn" in said[0]
    plan = planned(tmp_path, "optim.base_lr=1e-3,2e-3", judge="knn")
    assert "--judge" not in outcome(plan, dict.fromkeys(plan.children, "no memory")).said[0]


def test_cores_and_gpus_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_cores", lambda: 8)
    monkeypatch.setattr(places, "_gpus", lambda: ["0", "1", "2", "3"])
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert places.shares(1) == [{}]  # as though it had been typed
    assert places.shares(2) == [
        {"OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "0,2"}, {"OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "1,3"}
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"--at_once 5: this machine has 4 GPU\(s\)"):
        places.shares(5)
    monkeypatch.setattr(places, "_gpus", list)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert places.shares(2) == [{"OMP_NUM_THREADS": "3"}] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mae", "--out", "o", "--at_once", "0"], "--at_once 0 must be at least 1"),
        (["mae", "--out", "o", "--job", "timeout_min=5"], "--job timeout_min=5 is for submitit and ray"),
        (["mae", "--out", "o", "--over", "optim.base_lr=1e-3,oops"], "--optim.base_lr: expected a number, got oops"),
        (["mae", "--out", "o", "--over", "fit.epoch=1"], "did you mean fit.epochs"),
        (["mae", "--out", "o", "--on_tst"], "unknown option --on_tst; did you mean --on_test"),
        (["finetune", "--out", "o"], "--backbone is missing"),
        (["finetune", "--out", "o", "--over", "backbone=a,b"], "--backbone a does not exist"),
    ],
)
def test_the_command_tells_mistakes_in_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        module_of("recipes/sweep.py").command(words)
    err = capsys.readouterr().err
    assert left.value.code == 2
    assert (err.startswith("error: "), err.count("\n")) == (True, 1)
    assert said in err


def test_varied_networks_are_looked_up_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, said in {
        ("mae", "--over", "model.name=vit_micro,vit_smal_patch16_224"): "did you mean vit_small_patch16_224",
        (
            "mae",
            "--over",
            "model.name=vit_micro,resnet18",
        ): "does not go with a method that leaves out or replaces patches",
    }.items():
        with pytest.raises(SystemExit):
            module_of("recipes/sweep.py").command([*words, "--out", "o"])
        assert said in capsys.readouterr().err
        assert not (tmp_path / "o").exists()


def test_options_of_sweep_and_command_may_be_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cells").mkdir()
    words = ["--seeds", "2", "mae", "--data.path", "cells", "--over=optim.base_lr=1e-3", "--out", "o", "--fit.epochs=3"]
    plan, how = module_of("recipes/sweep.py").asked_for([*words, "--at_once", "2"])
    assert plan.asked.words == ("--data.path", "cells", "--fit.epochs=3")
    assert how == {"at_once": 2, "executor": "local", "job": []}
    check_words(["sweep", *words])
    with pytest.raises(UserError, match=r"did you mean --?fit\.epochs|did you mean fit\.epochs"):
        check_words(["sweep", *words, "--over", "fit.epoch=1"])


def test_the_best_is_chosen_over_the_seeds_that_all_have(tmp_path: Path) -> None:
    plan = planned(tmp_path, "optim.base_lr=1e-3,2e-3", seeds=2, judge="knn")
    values = {"optim.base_lr=0.001": [80.0, 92.0], "optim.base_lr=0.002": [0.0, 91.0]}
    for child in plan.children:
        if (child.setting, child.seed) != ("optim.base_lr=0.002", 0):  # one that failed
            finish(child, values[child.setting][child.seed])
    assert outcome(plan, {})[1][0].startswith("best by knn top-1 %, 80 labels, held out: optim.base_lr=0.001, 86.0")
