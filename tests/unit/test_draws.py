"""Draws of a verdict: several at a time, and those that would end after the budget are left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ssl_vit.configs import ResolvedModel
from ssl_vit.statistics.advice import Way
from ssl_vit.verdict import draws
from ssl_vit.verdict.draws import Tuned, Wanted, make_draws
from ssl_vit.verdict.options import verdict_recipe
from ssl_vit.verdict.runner import Runner, Task
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.tuning import Candidate

MODEL = ResolvedModel("vit_tiny_patch16_224", 8, pool="mean")
STUDY = Study(
    folder=Path("v"), recipe=verdict_recipe()(), kind="class", metric="top1", labels=(20,), starts=("scratch",),
    preset="digits", model=MODEL, networks={}, given={}, epochs={}, base_lr={}, tuned=(), matched=(),
    judged=100, heads=(5120, 640),
)  # fmt: skip
TASKS = draws._training_tasks
LONG, SHORT = 100.0, 20.0
"""Work of a draw's two tasks; one per second."""


class Timed(Runner):
    """Counts seconds of work instead of waiting for them; as many processes as ``jobs`` says share them."""

    def __init__(self, folder: Path, jobs: int, already: float = 0.0) -> None:
        super().__init__(folder, 0, main=True)
        self.jobs, self.seconds, self.ran = jobs, already, list[list[str]]()

    def run(self, tasks):
        todo = [task for task in tasks if not self.is_done(task)]
        self.ran.append([task.key for task in todo])
        self.seconds += max([sum(u.seconds for u in todo) / self.jobs, *(u.seconds for u in todo)], default=0.0)
        return super().run(tasks)

    def elapsed(self) -> float:
        return self.seconds

    def took(self, task: Task) -> float:
        return task.seconds


def nothing() -> dict[str, int]:
    return {}


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    def tasks(study: Study, draw: int, tuned: Tuned, wanted: Wanted | None = None) -> list[Task]:
        both = {"short": Task(f"short-{draw}", nothing, (), SHORT), "long": Task(f"long-{draw}", nothing, (), LONG)}
        return [task for name, task in both.items() if wanted is None or Way(name, "train") in wanted[20]]

    monkeypatch.setattr(draws, "_training_tasks", tasks)


def make(runner: Runner, budget: float | None, total: int = 5) -> tuple[int, list[str]]:
    return make_draws(STUDY, Tuned({}, {}, {}), runner, budget, total)


def test_as_many_draws_at_a_time_as_processes_longest_first(tmp_path: Path) -> None:
    runner = Timed(tmp_path, 2)
    assert make(runner, None) == (5, [])
    assert runner.ran == [
        ["long-0", "long-1", "short-0", "short-1"], ["long-2", "long-3", "short-2", "short-3"], ["long-4", "short-4"]
    ]  # fmt: skip
    assert runner.seconds == 120 + 120 + 100  # draw by draw it would be 500


@pytest.mark.parametrize(("budget", "made"), [(359.0, 4), (360.0, 5), (259.0, 3), (239.0, 3), (10.0, 3)])
def test_draws_that_would_end_after_the_budget_are_left_out(tmp_path: Path, budget: float, made: int) -> None:
    runner = Timed(tmp_path, 2)
    found, notes = make(runner, budget)
    assert found == made
    assert runner.seconds <= max(budget, 220)
    which = "draw 5 of training all weights was" if made == 4 else f"draws {made + 1} to 5 of training all weights were"
    left_out = [f"{which} left out to keep the budget"]
    assert notes == ([] if made == 5 else left_out)


def test_what_is_done_is_not_left_out(tmp_path: Path) -> None:
    assert make(Timed(tmp_path, 1), 510.0)[0] == 4
    again = Timed(tmp_path, 1, already=1e6)
    assert make(again, 510.0)[0] == 4
    assert not any(again.ran)


def test_many_processes_begin_no_more_than_must_be_made(tmp_path: Path) -> None:
    runner = Timed(tmp_path, 16)
    assert make(runner, 150.0)[0] == 3
    assert len(runner.ran) == 1


@pytest.mark.parametrize("total", [1, 2, 3])
def test_few_draws_are_all_made(tmp_path: Path, total: int) -> None:
    assert make(Timed(tmp_path, 4), None, total) == (total, [])


def test_a_draw_that_was_begun_is_finished(tmp_path: Path) -> None:
    assert make(Timed(tmp_path, 1), 510.0, 4)[0] == 4
    (tmp_path / "units" / "long-3.json").unlink()  # the fourth draw was interrupted
    again = Timed(tmp_path, 1, already=1e6)
    assert make(again, 510.0, 5) == (4, ["draw 5 of training all weights was left out to keep the budget"])
    assert [key for keys in again.ran for key in keys] == ["long-3"]


def test_no_more_draws_of_what_cannot_change_the_advice(tmp_path: Path) -> None:
    runner, looks = Timed(tmp_path, 1), list[int]()

    def worth(made: int) -> Wanted:
        looks.append(made)
        return {20: frozenset({Way("short", "train")} if made < 5 else ())}

    assert make_draws(STUDY, Tuned({}, {}, {}), runner, None, 10, worth) == (5, [])
    assert looks == [3, 4, 5], "two draws are too few to tell, and after the last there is nothing to decide"
    assert [key for keys in runner.ran for key in keys] == [
        "long-0", "short-0", "long-1", "short-1", "long-2", "short-2", "short-3", "short-4"
    ]  # fmt: skip
    again = Timed(tmp_path, 1)
    assert make_draws(STUDY, Tuned({}, {}, {}), again, None, 10, worth)[0] == 5
    assert not any(again.ran), "what was decided once is decided again"


@pytest.mark.parametrize("jobs", [1, 2, 4, 8])
@pytest.mark.parametrize("after", range(1, 14))
def test_whoever_goes_on_looks_where_it_was_looked_before(tmp_path: Path, jobs: int, after: int) -> None:
    """A look in the middle of draws that were begun would give up some of which there are results already."""

    class Killed(Timed):
        def run(self, tasks):
            super().run(tasks[: max(0, after - sum(map(len, self.ran)))])
            if sum(map(len, self.ran)) >= after:
                raise KeyboardInterrupt
            return {}

    def worth(made: int) -> Wanted:
        return {20: frozenset({Way("short", "train")} if made < 8 else ())}

    with pytest.raises(KeyboardInterrupt):
        make_draws(STUDY, Tuned({}, {}, {}), Killed(tmp_path, 8), None, 10, worth)
    made, notes = make_draws(STUDY, Tuned({}, {}, {}), Timed(tmp_path, jobs), None, 10, worth)
    assert not notes
    done = {name: {int(path.stem.split("-")[1]) for path in (tmp_path / "units").glob(f"{name}-*")}
            for name in ("long", "short")}  # fmt: skip
    assert done["short"] == set(range(made)), "every draw that counts, and none beyond"
    assert done["long"] == set(range(3)) or done["long"] == set(range(len(done["long"])))


def test_what_was_left_out_once_has_no_later_draws(tmp_path: Path) -> None:
    """Else its draws would have gaps, and whoever reads the verdict would not know why."""
    runner, both = Timed(tmp_path, 1), frozenset({Way("long", "train"), Way("short", "train")})

    def worth(made: int) -> Wanted:
        return {20: both - {Way("long", "train")} if made == 3 else both}

    assert make_draws(STUDY, Tuned({}, {}, {}), runner, None, 6, worth) == (6, [])
    later = [key for keys in runner.ran for key in keys][6:]
    assert later == ["short-3", "short-4", "short-5"]


def test_draws_that_a_claim_needs_are_made_whatever_the_advice(tmp_path: Path) -> None:
    recipe = replace(STUDY.recipe, verdict=replace(STUDY.recipe.verdict, matched_draws=4))
    study, none = replace(STUDY, recipe=recipe, matched=(20,)), {20: frozenset[Way]()}
    assert make_draws(study, Tuned({}, {}, {}), Timed(tmp_path, 1), None, 10, lambda made: none)[0] == 4


def test_a_task_is_wanted_by_its_way_and_number_of_labels(tmp_path: Path) -> None:
    tuned = Tuned({("scratch", 20): Candidate(1e-3, 0.05, 1.0, 1.0)}, {}, {})
    assert len(TASKS(STUDY, 0, tuned)) == 1
    for wanted, count in (({20: {Way("scratch", "train")}}, 1), ({20: {Way("scratch", "knn")}}, 0), ({}, 0)):
        assert len(TASKS(STUDY, 0, tuned, {n: frozenset(ways) for n, ways in wanted.items()})) == count


def test_what_tasks_take_by_themselves_is_told_from_what_images_take(tmp_path: Path) -> None:
    class Heavy(Timed):
        """Every task takes ten seconds more than its images."""

        def took(self, task: Task) -> float:
            return task.seconds + 10.0

    runner = Heavy(tmp_path, 1)
    before = [Task("a", nothing, (), 200.0), Task("b", nothing, (), 100.0)]
    runner.run(before)
    many = [Task(f"c{i}", nothing, (), 1.0) for i in range(20)]
    assert draws._expected(many, before, runner) == pytest.approx(20 * 11.0)
