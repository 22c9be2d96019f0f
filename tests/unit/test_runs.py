"""The list of run directories: what each is, how far it is, and that nothing on a disk breaks it; needs no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ssl_vit.configs.networks import FAMILIES
from ssl_vit.core.schedules import whole_steps
from ssl_vit.core.started import module_of
from ssl_vit.runs import lock, telling
from ssl_vit.runs.listing import Run, Unread, find, last_line, read
from ssl_vit.runs.networks import RELEASED

ROOT = Path(__file__).resolve().parents[2]
CONFIG: dict[str, Any] = {
    "seed": 0, "run": {"dir": None}, "data": {"path": "cells"}, "optim": {"base_lr": 0.001},
    "model": {"name": "vit_tiny_patch16_224", "img_size": 32, "patch_size": 4},
    "fit": {"epochs": 2.0, "min_steps": 0, "log_every": 10},
}  # fmt: skip


def made(
    path: Path, *, step: int = 40, saved: int = 0, script: str = "mae", done: bool = False,
    command: str = "ssl-vit mae --data.path cells", **changes: Any,
) -> Path:  # fmt: skip
    """A run of 2 epochs of 20 steps."""
    path.mkdir(parents=True)
    config = CONFIG | changes
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    about = {
        "script": script, "command": command, "commit": "c0ffee" * 6, "data_fingerprint": "f",
        "versions": {"ssl_vit": "0.2.0", "torch": "2.7.0"}, "hardware": {"cpu": "EPYC", "processes": 1},
    }  # fmt: skip
    (path / "environment.json").write_text(json.dumps(about))
    if step:
        (path / "metrics.jsonl").write_text(json.dumps({"step": step, "epoch": step / 20, "loss": 0.5}) + "\n")
    if saved:
        (path / "checkpoints").mkdir()
        (path / "checkpoints" / f"step_{saved:09d}.pt").touch()
    if done:
        (path / "backbone").mkdir()
        for name in ("config.json", "model.safetensors"):
            (path / "backbone" / name).write_text("{}")
    return path


def judged(path: Path, value: float, name: str = "knn", **protocol: Any) -> None:
    from ssl_vit.runs.identity import digest

    whole = {"kind": "class", "metric": "top1", "test": {"images": 9, "split": "a fifth"}, "knn": {"k": 20}} | protocol
    rows = [{"method": "MAE", "k": 10, "top1": 1.0, "headline": False}, {"method": "MAE", "top1": value},
            {"method": "raw pixels", "top1": 50.0}]  # fmt: skip
    content = {"method": "knn", "rows": rows, "protocol": whole, "protocol_hash": digest(whole), "labels_used": 100,
               "draw": None, "seed": 0, "data": {}}  # fmt: skip
    (path / "results").mkdir(exist_ok=True)
    (path / "results" / f"{name}.json").write_text(json.dumps(content))


def held(path: Path, alive: bool, **changes: Any) -> None:
    """A lock that names this process, or one of this machine that has ended."""
    owner = replace(lock._this_process(), **changes)
    (path / lock.NAME).write_text(json.dumps(asdict(owner if alive else replace(owner, began=-1.0))) + "\n")


def ended(path: Path, status: int, why: str = "", job: str | None = None) -> None:
    (path / lock.ENDED).write_text(json.dumps({"status": status, "why": why, "job": job}))


def state(path: Path) -> tuple[str, str]:
    run = read(path)
    assert isinstance(run, Run), run
    return run.state, run.told


def test_states_follow_from_lock_and_records(tmp_path: Path) -> None:
    assert state(made(tmp_path / "done", done=True)) == ("done", "done, 40 steps")
    assert state(made(tmp_path / "short", step=30, saved=25, done=True)) == ("stopped", "stopped at step 25 of 40")
    assert state(made(tmp_path / "begun", step=0)) == ("stopped", "stopped before its first checkpoint")

    running = made(tmp_path / "running", step=30, saved=25)
    held(running, True)
    told, words = state(running)
    assert (told, words.partition(" on ")[0]) == ("running", "running, step 30 of 40")

    killed = made(tmp_path / "killed", step=30, saved=25)
    held(killed, False)
    assert state(killed) == ("crashed", "crashed after step 30 of 40 (step 25 is saved)")

    requeued = made(tmp_path / "requeued", step=30, saved=28)
    ended(requeued, 75, job="12")
    assert state(requeued) == ("waiting", "waiting to be requeued, job 12, at step 28 of 40")
    ended(requeued, 75)  # without a scheduler nobody starts it again
    assert state(requeued) == ("stopped", "stopped at step 28 of 40")
    ended(requeued, 1, why="the loss stopped being a finite number")
    assert state(requeued) == ("crashed", "crashed after step 30 of 40: the loss stopped being a finite number")
    (requeued / lock.ENDED).write_text("{")
    assert state(requeued)[0] == "stopped"


def test_who_reads_a_finished_run_does_not_make_it_a_running_one(tmp_path: Path) -> None:
    run = made(tmp_path / "run", done=True)
    held(run, True, command="ssl-vit knn --backbone run")
    assert state(run) == ("done", "done; in use by ssl-vit knn --backbone run")


def test_training_on_labels_is_done_when_it_is_judged(tmp_path: Path) -> None:
    run = made(tmp_path / "run", script="supervised", done=True)
    assert state(run)[0] == "stopped"
    judged(run, 90.0, "supervised")
    assert state(run)[0] == "done"


def test_steps_are_those_of_the_loop(tmp_path: Path) -> None:
    """Uneven epochs and a least number of steps, as the loop counts them."""
    for number, (epochs, least, per_epoch, whole) in enumerate(
        [
            (2.0, 0, 14.05, 29),
            (0.1, 0, 14.05, 2),
            (3.0, 0, 7 / 3, 7),
            (1.0, 1000, 14.05, 1000),
            (0.001, 0, 10, 1),
            (6.0, 0, 5000 / 48, 625),
            (60.0, 0, 1000 / 96, 625),
            (15.0, 0, 1000 / 120, 125),
        ]
    ):
        run = made(tmp_path / f"{number}", step=0, fit={"epochs": epochs, "min_steps": least})
        (run / "metrics.jsonl").write_text(json.dumps({"step": 3, "epoch": 3 / per_epoch, "loss": 1.0}) + "\n")
        found = read(run)
        assert isinstance(found, Run)
        assert found.steps == whole
        assert whole_steps(epochs * per_epoch, least) == whole


def test_the_last_line_survives_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert last_line(path) == {}
    path.write_text('{"step": 1}\n' * 20_000 + '{"step": 7, "loss": 2}\n[1]\n{"step": "x"}\n{"step": 8, "lo')
    assert last_line(path) == {"step": 7, "loss": 2}
    path.write_bytes(b"\xff\x00")
    assert last_line(path) == {}


def test_damaged_and_foreign_folders_are_one_line_each(tmp_path: Path) -> None:
    made(tmp_path / "good", done=True)
    cases = {
        "half": ("config.yaml", "a: [1", "config.yaml is not valid YAML"),
        "binary": ("environment.json", "\x00", "environment.json is not valid JSON"),
        "list": ("config.yaml", "- 1", "config.yaml holds no options"),
        "other": ("environment.json", "{}", "names no script"),
        "null": ("environment.json", '{"script": "mae", "versions": null}', "has versions of another kind"),
        "kinds": (
            "environment.json",
            '{"script": "mae", "hardware": 5, "started_from": "x"}',
            "has hardware, started_",
        ),
    }
    for name, (file, text, _) in cases.items():
        (made(tmp_path / name) / file).write_text(text)
    (made(tmp_path / "without") / "environment.json").unlink()
    (tmp_path / "photos" / "deep").mkdir(parents=True)
    (tmp_path / RELEASED / "dinov2-1c50aa" / "backbone").mkdir(parents=True)  # weights from elsewhere: no run
    (tmp_path / "notes.txt").write_text("")
    found = list(find(tmp_path))
    assert [one.path.name for one in found if isinstance(one, Run)] == ["good"]
    why = {one.path.name: one.why for one in found if isinstance(one, Unread)}
    assert set(why) == {*cases, "without", "photos"}
    for name, (_, _, words) in cases.items():
        assert words in why[name]
    assert "holds no run" in why["photos"]
    lines = telling.table(found).splitlines()
    assert len(lines) == 2 + len(why)
    assert sum(line.startswith("left out: ") for line in lines) == len(why)


def test_damaged_results_do_not_break_the_list_and_are_named_where_one_is_shown(tmp_path: Path) -> None:
    run = made(tmp_path / "run", done=True)
    judged(run, 90.0)
    (run / "results" / "knn.json").write_text('{"rows": [3], "protocol": {"metric": "top1"}}')
    (run / "results" / "odd.json").write_text("[")
    found = read(run)
    assert isinstance(found, Run)
    assert found.knn is None
    assert "knn.json is no result file" in telling.one(found)
    assert "odd.json cannot be read" in telling.one(found)


def test_runs_are_found_wherever_they_lie(tmp_path: Path) -> None:
    for place in ("a", "group/b", "group/deeper/c", "a/finetune/d"):
        made(tmp_path / place, done=True)
    sweep = tmp_path / "sweep"
    made(sweep / "runs" / "e")
    (sweep / "sweep.json").write_text("{}")
    (sweep / "logs").mkdir()
    made(tmp_path / "verdict", script="verdict")
    made(tmp_path / "verdict" / "runs" / "inside")
    (tmp_path / "loop").symlink_to(tmp_path)
    names = [one.path.name for one in find(tmp_path) if one.path.relative_to(tmp_path).parts[0] != "loop"]
    assert sorted(names) == ["a", "b", "c", "d", "e", "verdict"]
    assert [one.path.name for one in find(sweep)] == ["e"]


VIT = {
    "architecture": "vit_tiny_patch16_224", "pretrained_cfg": {"input_size": [1, 8, 8]},
    "model_args": {"embed_dim": 16, "depth": 2, "num_heads": 2, "patch_size": 4, "img_size": 8},
    "ssl_vit": {"data": {"path": "digits"}, "eval_data": {"path": None}},
}  # fmt: skip


def test_a_fine_tuning_shows_the_images_and_the_network_of_its_backbone(tmp_path: Path) -> None:
    """A recipe that leaves both to its backbone, wherever the command was typed; not "of a" for both."""
    run = made(tmp_path / "a", done=True)
    given = {"data": {}, "model": {"img_size": 16, "patch_size": 4}, "backbone": "a"}
    tuned = made(run / "finetune" / "b", script="finetune", **given)
    suite = made(run / "transfer" / "c", script="finetune", **given | {"eval": {"data": {"path": "/cells"}}})

    def shown() -> list[tuple[str, str]]:
        found = [read(place) for place in (tuned, suite)]
        return [(one.data, one.network) for one in found if isinstance(one, Run)]

    (run / "backbone" / "config.json").write_text(json.dumps(VIT))
    assert shown() == [("digits", "2 x 16/4, 16 px"), ("/cells", "2 x 16/4, 16 px")]
    (tuned / "backbone").mkdir()
    own = VIT | {"ssl_vit": VIT["ssl_vit"] | {"eval_data": {"path": "/somewhere/labelled"}}}
    (tuned / "backbone" / "config.json").write_text(json.dumps(own))
    assert shown()[0] == ("/somewhere/labelled", "2 x 16/4, 16 px")
    family = {**VIT, "architecture": FAMILIES["cct_micro"].timm_name, "model_args": FAMILIES["cct_micro"].args}
    (run / "backbone" / "config.json").write_text(json.dumps(family))
    assert shown()[1] == ("/cells", "cct_micro, 16 px")
    (run / "backbone" / "config.json").write_text("{")
    assert shown()[1] == ("/cells", "of a")
    (run / "backbone" / "config.json").write_text(json.dumps(VIT))
    made(run / "transfer" / "digits" / "member-0", script="finetune", **given)  # of a soup
    found = [one for one in find(run) if isinstance(one, Run)]
    assert [one.path.name for one in found] == ["a", "b", "c", "member-0"]
    assert (found[-1].data, found[-1].network) == ("digits", "2 x 16/4, 16 px")


def test_a_network_of_another_family_has_its_short_name(tmp_path: Path) -> None:
    family = FAMILIES["swin_micro"]
    model = {"name": family.timm_name, "args": family.args, "img_size": 32, "patch_size": None}
    found = read(made(tmp_path / "a", model=model))
    assert isinstance(found, Run) and found.network == "swin_micro, 32 px"


def test_the_newest_stands_first_and_names_its_knn(tmp_path: Path) -> None:
    for i, name in enumerate(("old", "new", "middle")):
        run = made(tmp_path / name, done=True)
        os.utime(run / "metrics.jsonl", (0, [10, 30, 20][i]))
    judged(tmp_path / "new", 81.26)
    judged(tmp_path / "middle", 70.0, "knn-held-out")
    judged(tmp_path / "old", 60.0, "knn-20-labels-draw-0")
    lines = telling.table(list(find(tmp_path))).splitlines()
    assert [Path(line.split()[0]).name for line in lines[1:]] == ["new", "middle", "old"]
    assert " 81.3 " in lines[1]
    assert " 70.0 held out " in lines[2]
    assert " - " in lines[3]
    data = telling.listed(list(find(tmp_path)))
    assert [run["state"] for run in data["runs"]] == ["done"] * 3
    assert data["runs"][0]["knn"] == {"metric": "top1", "value": 81.26, "file": "results/knn.json"}
    assert json.loads(json.dumps(data)) == data


def test_a_long_reason_is_cut_in_the_table_and_whole_where_one_is_shown(tmp_path: Path) -> None:
    run = made(tmp_path / "run", step=30)
    ended(run, 1, "a reason " * 30)
    found = read(run)
    assert isinstance(found, Run)
    assert max(map(len, telling.table([found]).splitlines())) < len(str(run)) + 160
    assert ("a reason " * 30).strip() in telling.one(found)


def test_one_run_with_what_its_numbers_mean_and_what_to_type_next(tmp_path: Path) -> None:
    run = made(tmp_path / "a run", done=True)
    judged(run, 81.26)
    found = read(run)
    assert isinstance(found, Run)
    text = telling.one(found)
    assert "MAE 81.3, raw pixels 50.0 (100 labels, seed 0)" in text
    assert "on 9 images: a fifth; protocol " in text
    assert "knn.k 20" in " ".join(text.split())
    assert f"--backbone '{run}'" in text
    assert "eval/knn.py" not in text  # that is done
    assert telling.one_as_data(found)["results"][0]["rows"][1]["top1"] == 81.26
    stopped = read(made(tmp_path / "stopped", step=20, saved=20))
    assert isinstance(stopped, Run)
    assert "ssl-vit mae --data.path cells   (goes on with this run)" in telling.one(stopped)


def test_between_two_runs_only_what_differs_is_told(tmp_path: Path) -> None:
    one = made(tmp_path / "a", done=True)
    two = made(
        tmp_path / "b", done=True, optim={"base_lr": 0.002}, fit={**CONFIG["fit"], "log_every": 5},
        run={"dir": "elsewhere"}, command="ssl-vit mae --data.path cells --optim.base_lr=2e-3 --config my.yaml",
    )  # fmt: skip
    judged(one, 80.0)
    judged(two, 82.5)
    judged(one, 70.0, "other", knn={"k": 20})
    judged(two, 70.0, "other", knn={"k": 10})
    pair = [run for run in map(read, (one, two)) if isinstance(run, Run)]
    found = telling.between(*pair)
    assert {d.name: d.values for d in found["options"]} == {
        "optim.base_lr": ("0.001", "0.002 (typed)"), "fit.log_every": ("10", "5"), "config": ("-", "my.yaml"),
    }  # fmt: skip
    notes = {d.name: d.note for d in found["options"]}
    assert notes["fit.log_every"].startswith("a run may go on")
    assert notes["optim.base_lr"] == ""
    assert found["versions"] == []
    text = telling.two(*pair)
    assert "versions: the same" in text
    data = json.loads(json.dumps(telling.two_as_data(*pair)))
    assert {d["name"] for d in data["options"]} == {d.name for d in found["options"]}


def test_numbers_are_subtracted_only_where_they_mean_the_same(tmp_path: Path) -> None:
    one, two, three = (made(tmp_path / name, done=True) for name in "abc")
    judged(one, 80.0)
    judged(two, 82.5)
    judged(three, 82.5, knn={"k": 10})
    a, b, c = (run for run in map(read, (one, two, three)) if isinstance(run, Run))
    (alike,) = telling.between(a, b)["numbers"]  # raw pixels are the same
    assert (alike.values, alike.note) == (("80.0", "82.5"), "+2.5, one number each, no interval")
    unlike = telling.between(a, c)["numbers"]
    assert all(d.note == "not comparable: knn.k 20 -> 10" for d in unlike)
    assert telling.between(a, a)["numbers"] == []


def test_each_of_several_judgements_is_compared_with_its_own(tmp_path: Path) -> None:
    one, two = (made(tmp_path / name, done=True) for name in "ab")
    for place, values in ((one, (80.0, 60.0, 70.0)), (two, (81.0, 62.0))):
        for number, value in enumerate(values):
            test = {"images": 9, "split": "a fifth", "fingerprint": f"{number}abcdef0123"}
            judged(place, value, name=f"knn-on-{number}", test=test)
    a, b = (run for run in map(read, (one, two)) if isinstance(run, Run))
    found = {d.name.rpartition(", on ")[2]: d for d in telling.between(a, b)["numbers"] if "raw" not in d.name}
    assert {name: d.values for name, d in found.items()} == {
        "a fifth (0abcdef0, seed 0)": ("80.0", "81.0"), "a fifth (1abcdef0, seed 0)": ("60.0", "62.0"),
        "a fifth (2abcdef0, seed 0)": ("70.0", "-"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "there is no folder nowhere"),
        (["a/b"], "give run directories, or folders that hold them; it lies in the run a: name that"),
        (["a", "--compare"], "name two"),
        (["a", "none", "--compare"], "none is damaged, or no run"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "a")
    (tmp_path / "none").mkdir()
    with pytest.raises(SystemExit):
        module_of("eval/runs.py").command(words)
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err


def test_the_command_lists_shows_and_compares_without_torch(tmp_path: Path) -> None:
    for i in range(3):
        judged(made(tmp_path / "runs" / f"r{i}", done=True, seed=i), 80.0 + i)
    code = (
        "import sys, json\n"
        "from ssl_vit.core.started import module_of\n"
        "command = module_of('eval/runs.py').command\n"
        "for words in ([], ['runs/r0'], ['runs/r0', 'runs/r1', '--compare'], ['--json']):\n"
        "    command(words)\n"
        "loaded = {'torch', 'timm', 'accelerate', 'datasets', 'sklearn', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "runs/r2" in done.stdout
    assert "seed" in done.stdout


ENDS = """
import os, sys
from pathlib import Path
from ssl_vit.core.errors import UserError
from ssl_vit.core.signals import REQUEUE
from ssl_vit.runs import lock

try:
    with lock.holding():
        lock.hold(Path("run"))
        if sys.argv[2] == "training":
            lock.tell_end(Path("run"))
        exec(sys.argv[1])
except BaseException:
    pass
"""


GONE = """import socket; from ssl_vit.core import peers; socket.gethostname = lambda: 'here'
peers.learn([peers.myself(0), peers.myself(1).replace(str(os.getpid()) + ',', '4194399,')])"""
"""A second process of the job, which has ended: its number is larger than the system gives."""


@pytest.mark.parametrize(
    ("how", "status", "why"),
    [
        ("raise UserError('two words')", 1, "two words"),
        ("raise ValueError('a bug\\nin two lines')", 1, "ValueError: a bug in two lines"),
        ("raise KeyboardInterrupt", 130, ""),
        ("raise SystemExit(REQUEUE)", 75, ""),
        ("raise SystemExit(0)", None, ""),
        (
            f"{GONE}; raise RuntimeError('gloo: Connection closed by peer')",
            1,
            "process 1 of 2 (number 4194399 on here) has died",
        ),
        (f"{GONE}; raise RuntimeError('shapes cannot be multiplied')", 1, "RuntimeError: shapes cannot be multiplied"),
        ("pass", None, ""),
    ],
)
def test_a_run_that_ends_too_early_says_how(how: str, status: int | None, why: str, tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    ended(run, 1, "before")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SLURM_JOB_ID": "12"}
    words = [sys.executable, "-c", ENDS, how]
    subprocess.run([*words, "judging"], cwd=tmp_path, env=environment, timeout=60)
    assert json.loads((run / lock.ENDED).read_text())["why"] == "before"  # who judges says nothing of the training
    subprocess.run([*words, "training"], cwd=tmp_path, env=environment, timeout=60)
    assert not (run / lock.NAME).exists()
    if status is None:
        assert not (run / lock.ENDED).exists()
    else:
        assert json.loads((run / lock.ENDED).read_text()) == {"status": status, "why": why, "job": "12"}


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({}, "vit_tiny/4, 32 px"),
        ({"width": 192, "depth": 12, "heads": 3}, "vit_tiny/4, 32 px"),
        ({"width": 64, "depth": 4, "heads": 4}, "vit_micro/4, 32 px"),
        ({"width": 64, "depth": 3, "heads": 4}, "3 x 64/4, 32 px"),
    ],
)
def test_a_network_is_told_by_its_sizes(tmp_path: Path, sizes: dict[str, int], words: str) -> None:
    made(tmp_path / "run", model=CONFIG["model"] | sizes)
    run = read(tmp_path / "run")
    assert isinstance(run, Run)
    assert run.network == words
