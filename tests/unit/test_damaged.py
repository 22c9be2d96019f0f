"""Damaged files of a run: passed over, repaired or told in one line; a sound older checkpoint is always found."""

from __future__ import annotations

import errno
import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ssl_vit.configs import RunConfig
from ssl_vit.core import sums
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import content_of, sha256
from ssl_vit.core.reading import json_lines, mapping_in, object_in, read_object
from ssl_vit.methods.mae import MAEConfig, MAERecipe
from ssl_vit.report.findings.records import answers_beside
from ssl_vit.runs import diverged, listing
from ssl_vit.runs.arrays import read_arrays
from ssl_vit.runs.directory import RunDir, open_run
from ssl_vit.training.checkpoint import load_checkpoint, save_checkpoint

from made_scripts import InProcess

RUBBISH: dict[str, bytes] = {
    "empty": b"", "binary": bytes(range(256)) * 4, "list": b"[1, 2]", "numbers": b"{1: 2}", "text": b"no such thing",
    "deep": b"[" * 100_000, "zeros": bytes(500),
}  # fmt: skip


def recipe(path: Path, **changes: Any) -> MAERecipe:
    return replace(MAERecipe(run=RunConfig(str(path))), **changes)


def opened(config: MAERecipe, fingerprint: str = "f") -> RunDir:
    return open_run("mae", config, data="digits", fingerprint=fingerprint, writes=True, accelerator={"processes": 1})


def begun(path: Path) -> RunDir:
    run = opened(recipe(path))
    for step in (10, 20, 30):
        run.log({"step": step, "loss": 1.0})
    save_checkpoint(path / "checkpoints", 10, {"x": torch.ones(3)}, keep=3)
    save_checkpoint(path / "checkpoints", 20, {"x": torch.ones(3)}, keep=3)
    return run


# The first start


def killed_at(place: Path, kill: int) -> int:
    """The status of a process that begins a run, and is killed where the n-th file was to get its name."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    rename, left = Path.replace, [kill]

    def dying(path: Path, *given: Any) -> Path:
        left[0] -= 1
        if not left[0]:
            os._exit(9)
        return rename(path, *given)

    Path.replace = dying  # pyright: ignore[reportAttributeAccessIssue]
    try:
        opened(recipe(place))
    finally:
        os._exit(0)


def test_a_first_start_that_is_killed_anywhere_is_made_anew(tmp_path: Path) -> None:
    place = tmp_path / "run"
    for kill in range(1, 20):
        status = killed_at(place, kill)
        run = opened(recipe(place, mae=MAEConfig(mask_ratio=0.5)), fingerprint="other")
        assert "mask_ratio: 0.5" in (run.path / "config.yaml").read_text()
        assert object_in(place / "environment.json") is not None
        for path in place.iterdir():
            path.unlink()
        if status == 0:
            break
    assert kill > 2


@pytest.mark.parametrize("name", ["environment.json.part", "config.yaml.part", "ended.json.part", "run.lock.0a1b"])
def test_what_a_killed_start_leaves_does_not_occupy_a_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{")
    (tmp_path / "environment.json").write_text("{}")
    assert (opened(recipe(tmp_path)).path / "config.yaml").exists()


# Continuing


@pytest.mark.parametrize("content", RUBBISH.values(), ids=RUBBISH)
def test_a_damaged_environment_does_not_stop_a_run(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(tmp_path)
    (tmp_path / "environment.json").write_bytes(content)
    run = opened(recipe(tmp_path))
    run.confirm()
    run.record("steps", 30)
    assert capsys.readouterr().err.count("environment.json is damaged and begins anew") == 1
    about = object_in(tmp_path / "environment.json")
    assert about is not None and (about["script"], about["steps"]) == ("mae", 30)


def test_an_environment_of_rubbish_does_not_make_other_images_of_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(tmp_path)
    path = tmp_path / "environment.json"
    path.write_text(json.dumps(dict.fromkeys(json.loads(path.read_text()), 7)))
    opened(recipe(tmp_path)).confirm()
    assert capsys.readouterr().err.count("environment.json is damaged and begins anew") == 1
    opened(recipe(tmp_path)).confirm()
    assert not capsys.readouterr().err
    with pytest.raises(UserError, match="other images"):
        opened(recipe(tmp_path), fingerprint="g")


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.EACCES])
def test_an_environment_that_cannot_be_read_is_not_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    run = begun(tmp_path)
    before, read = (tmp_path / "environment.json").read_bytes(), Path.read_bytes

    def fails(path: Path) -> bytes:
        if path.name == "environment.json":
            raise OSError(code, os.strerror(code), str(path))
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fails)
        for use in (lambda: opened(recipe(tmp_path)), run.confirm, lambda: run.record("steps", 30)):
            with pytest.raises(UserError, match=r"environment\.json cannot be read \(.*\); it was not changed, and"):
                use()
    assert (tmp_path / "environment.json").read_bytes() == before


def test_an_environment_with_other_values_does_not_stop_a_run(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / "environment.json").write_text('{"continued": 3, "data_fingerprint": "f"}')
    run = opened(recipe(tmp_path))
    run.confirm()
    about = object_in(tmp_path / "environment.json")
    assert about is not None and len(about["continued"]) == 1


@pytest.mark.parametrize("content", RUBBISH.values(), ids=RUBBISH)
def test_a_damaged_config_is_written_anew_where_its_hash_is_known(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (begun(tmp_path).path / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(UserError, match=r"config\.yaml is damaged, and whether these are the options"):
        opened(recipe(tmp_path, mae=MAEConfig(mask_ratio=0.5)))
    run = opened(recipe(tmp_path))
    run.confirm()
    assert "config.yaml is damaged; it is written anew" in capsys.readouterr().err
    assert (tmp_path / "config.yaml").read_text() == whole
    (tmp_path / "config.yaml").write_bytes(content)
    (tmp_path / "environment.json").write_bytes(content)
    with pytest.raises(UserError, match=r"config\.yaml is damaged"):
        opened(recipe(tmp_path))


def test_a_config_of_other_groups_is_told(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / "config.yaml").write_text("mae: 3\nfit: [1]\n")
    with pytest.raises(UserError, match="another config"):
        opened(recipe(tmp_path))


def test_lines_that_cannot_be_read_are_told_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = begun(tmp_path)
    path = tmp_path / "metrics.jsonl"
    first, second, third = path.read_bytes().splitlines(keepends=True)
    rubbish = [second[:7] + third, b"\xff\xfe\x00\n", b"[1]\n", b"[" * 100_000 + b"\n"]
    path.write_bytes(b"".join([first, *rubbish, second, b'{"st']))
    run.rewind(20)
    told = capsys.readouterr().err
    assert f"warning: 4 line(s) of {path} cannot be read (2, 3, 4, 5) and are left out" in told
    assert path.read_bytes() == first + second
    run.rewind(20)
    assert not capsys.readouterr().err


def test_half_a_last_line_is_what_a_crash_leaves_and_not_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = begun(tmp_path)
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 25, "lo')
    run.rewind(30)
    assert not capsys.readouterr().err
    assert [line["step"] for line in json_lines(tmp_path / "metrics.jsonl").whole] == [10, 20, 30]


def test_rubbish_in_a_line_of_times_does_not_stop_a_result(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run.log({"step": 10, "images_per_second": 5.0, "peak_memory": 7}, "timing.jsonl")
    with (tmp_path / "timing.jsonl").open("ab") as file:
        file.write(b"\x00\xff\n[]\n{}\n")
    assert run.training_speed() == {"images_per_second": 5.0, "peak_memory": 7}


def flipped(path: Path, place: int = 0) -> None:
    """One bit of a file changes."""
    content = bytearray(path.read_bytes())
    content[place] ^= 0x80
    path.write_bytes(content)


def unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


def another(path: Path) -> None:
    """Sound by its hash, and no checkpoint of that step."""
    save_checkpoint(path.parent, 999, {}, keep=9)
    for suffix in (".pt", ".sha256"):
        (path.parent / f"step_000000999{suffix}").replace(path.with_suffix(suffix))


def no_checkpoint(path: Path) -> None:
    path.write_bytes(b"no zip")
    path.with_suffix(".sha256").write_text(sha256(path))


@pytest.mark.parametrize(
    "damage",
    [flipped, lambda path: flipped(path.with_suffix(".sha256")), lambda path: path.with_suffix(".sha256").unlink(),
     lambda path: unreadable(path.with_suffix(".sha256")), another, no_checkpoint],
    ids=["data", "hash", "no hash", "folder for a hash", "another step", "no checkpoint"],
)  # fmt: skip
def test_an_older_checkpoint_is_used_whatever_happened_to_the_newest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    begun(tmp_path)
    damage(tmp_path / "checkpoints" / "step_000000020.pt")
    found = load_checkpoint(tmp_path / "checkpoints")
    assert found is not None and found["step"] == 10
    assert "step_000000020.pt is damaged or incomplete; an older one is used" in capsys.readouterr().err


def test_folders_and_files_named_like_a_checkpoint_are_none(tmp_path: Path) -> None:
    for name in ("step_000000090.pt", "step_000000030.pt"):
        (tmp_path / name).mkdir()
    (tmp_path / "step_mine.pt").write_text("my own")
    save_checkpoint(tmp_path, 20, {}, keep=1)
    found = load_checkpoint(tmp_path)
    assert found is not None and found["step"] == 20
    save_checkpoint(tmp_path, 30, {}, keep=1)
    found = load_checkpoint(tmp_path)
    assert found is not None and found["step"] == 30
    assert (tmp_path / "step_000000030.pt.folder").is_dir()
    assert (tmp_path / "step_mine.pt").read_text() == "my own"


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl", "health.jsonl", "environment.json", "config.yaml"])
def test_a_run_goes_on_whatever_became_of_a_file_beside_its_checkpoints(
    script: InProcess, small: list[str], tmp_path: Path, name: str
) -> None:
    words = [*small, "--fit.checkpoint_steps", "3", "--fit.log_every", "1", "--run.dir", "run", "--fit.epochs"]
    status, _, err = script("recipes/mae.py", *words, "0.1")
    assert status == 0, err
    path = tmp_path / "run" / name
    path.write_bytes(RUBBISH["binary"] + b"\n")
    status, out, err = script("recipes/mae.py", *words, "0.2")
    assert status == 0, err
    assert "continues after step" in out
    assert str(Path("run", name)) in err


# What is no file


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


BESIDE = ["config.yaml", "environment.json", "metrics.jsonl", "timing.jsonl", "ended.json", "diverged.jsonl"]


@pytest.mark.parametrize("made", [unreadable, pipe])
@pytest.mark.parametrize("name", BESIDE)
def test_what_is_no_file_makes_way_for_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, made: Callable[[Path], None]
) -> None:
    begun(tmp_path)
    (tmp_path / name).touch()
    made(tmp_path / name)
    assert isinstance(listing.read(tmp_path), (listing.Run, listing.Unread))
    run = opened(recipe(tmp_path))
    run.confirm()
    run.rewind(20)
    run.training_speed()
    run.log({"step": 30, "peak_memory": 1}, "timing.jsonl")
    run.log({"step": 30})
    diverged.tell(tmp_path, {"batch": 4})
    assert diverged.batches_left_out(tmp_path) == [4]
    aside = f"{name}.{'folder' if made is unreadable else 'file'}"
    assert f"{tmp_path / name} is no file, where one belongs; it is called {aside} now" in capsys.readouterr().err
    assert (tmp_path / aside).exists()
    assert name == "ended.json" or (tmp_path / name).is_file()


@pytest.mark.parametrize("made", [unreadable, pipe])
@pytest.mark.parametrize("step", ["000000030", "9999999999999999999999"])
def test_hashes_that_are_no_files_stop_no_checkpoint(tmp_path: Path, step: str, made: Callable[[Path], None]) -> None:
    folder = tmp_path / "checkpoints"
    begun(tmp_path)
    (folder / f"step_{step}.pt").write_bytes(b"")
    (folder / f"step_{step}.sha256").touch()
    made(folder / f"step_{step}.sha256")
    found = load_checkpoint(folder)
    assert found is not None and found["step"] == 20
    save_checkpoint(folder, 30, {}, keep=1)
    found = load_checkpoint(folder)
    assert found is not None and found["step"] == 30
    assert [path.name for path in folder.glob("*.pt")] == ["step_000000030.pt"]


def test_a_file_named_like_the_folder_of_checkpoints_makes_way(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("mine")
    (tmp_path / "checkpoints.file").write_text("mine, too")
    save_checkpoint(tmp_path / "checkpoints", 1, {}, keep=1)
    assert (tmp_path / "checkpoints.file1").read_text() == "mine"
    assert load_checkpoint(tmp_path / "checkpoints") is not None


def test_sums_that_are_no_file_are_written_anew(tmp_path: Path) -> None:
    (tmp_path / "results" / sums.NAME).mkdir(parents=True)
    (tmp_path / "results" / "knn.json").mkdir()
    RunDir(tmp_path, writes=True).write_result("knn", {"top1": 1.0})
    assert list(sums.read(tmp_path / "results")) == ["knn.json"]


@pytest.mark.parametrize("content", [{"step": 30}, {"step": 30, "objective": 3, "optimizer": {}}, {"step": "x"}, {}])
def test_a_checkpoint_without_weights_is_passed_over(tmp_path: Path, content: dict[str, Any]) -> None:
    save_checkpoint(tmp_path, 20, {"objective": {}, "optimizer": {}}, keep=2)
    path = tmp_path / "step_000000030.pt"
    torch.save(content, path)
    path.with_suffix(".sha256").write_text(sha256(path))
    found = load_checkpoint(tmp_path, ("objective", "optimizer"))
    assert found is not None and found["step"] == 20


# What cannot be read now, and may be sound


def failing(error: Exception, where: str) -> Callable[..., Any]:
    """Fails for checkpoints of step 20 alone."""

    def fails(path: Path, *given: Any, **named: Any) -> Any:
        if "step_000000020" in str(path):
            raise error
        return original(path, *given, **named)

    original: Any = {"sha256": sha256, "content_of": content_of, "torch.load": torch.load}[where]
    return fails


STALE = OSError(errno.ESTALE, "Stale file handle")
NO_ROOM = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
UNREAD = [
    ("sha256", STALE), ("sha256", OSError(errno.EIO, "Input/output error")), ("content_of", STALE),
    ("content_of", PermissionError(errno.EACCES, "Permission denied")), ("torch.load", STALE),
    ("torch.load", MemoryError()), ("torch.load", NO_ROOM),
]  # fmt: skip


@pytest.mark.parametrize(("where", "error"), UNREAD, ids=[f"{where} {type(error).__name__}" for where, error in UNREAD])
def test_a_checkpoint_that_cannot_be_read_is_not_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, where: str, error: Exception
) -> None:
    begun(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(f"ssl_vit.training.checkpoint.{where}", failing(error, where))
        with pytest.raises(UserError, match="nothing was changed, and the same command goes on") as told:
            load_checkpoint(tmp_path / "checkpoints")
    assert str(tmp_path / "checkpoints" / "step_000000020.pt") in str(told.value) and "\n" not in str(told.value)
    assert "damaged" not in capsys.readouterr().err
    found = load_checkpoint(tmp_path / "checkpoints")
    assert found is not None and found["step"] == 20


@pytest.mark.parametrize("where", ["Path.iterdir", "Path.stat"])
def test_a_folder_that_cannot_be_listed_is_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    begun(tmp_path)

    def fails(path: Path, **_: Any) -> Any:
        raise OSError(errno.ESTALE, "Stale file handle", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(f"ssl_vit.training.checkpoint.{where}", fails)
        with pytest.raises(UserError, match=r"checkpoints.* cannot be read \(Stale file handle\); nothing was changed"):
            load_checkpoint(tmp_path / "checkpoints")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_whose_checkpoints_cannot_be_read_is_left_as_it_is(
    script: InProcess, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*small, "--fit.checkpoint_steps", "3", "--fit.log_every", "1", "--run.dir", "run", "--fit.epochs"]
    assert script("recipes/mae.py", *words, "0.1")[0] == 0
    before = contents(tmp_path / "run")

    def fails(path: Path) -> str:
        raise OSError(errno.EIO, "Input/output error", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("ssl_vit.training.checkpoint.sha256", fails)
        status, _, err = script("recipes/mae.py", *words, "0.2")
    (told,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert status == 1 and ".pt cannot be read (Input/output error); nothing was changed" in told
    assert "damaged" not in err and "Traceback" not in err
    after = contents(tmp_path / "run")
    assert all(after[name] == content for name, content in before.items()) and after.keys() - before <= {"ended.json"}
    status, out, err = script("recipes/mae.py", *words, "0.2")
    assert status == 0 and "continues after step" in out, err


def test_checkpoints_of_which_none_is_sound_are_put_aside(script: InProcess, small: list[str], tmp_path: Path) -> None:
    words = [*small, "--fit.checkpoint_steps", "3", "--run.dir", "run", "--fit.epochs", "0.1"]
    folder = tmp_path / "run" / "checkpoints"
    for ending in (".damaged", ".damaged1"):
        assert script("recipes/mae.py", *words)[0] == 0
        old = sorted(path for path in folder.iterdir() if ".damaged" not in path.name)
        assert len(old) >= 4  # with their hashes
        for path in old:
            flipped(path)
        broken = {path.name + ending: path.read_bytes() for path in old}
        status, out, err = script("recipes/mae.py", *words)
        assert status == 0 and "continues" not in out
        assert f"no checkpoint in run/checkpoints is sound, and training begins anew; they are called *{ending}" in err
        assert {path.name: path.read_bytes() for path in folder.glob(f"*{ending}")} == broken
        assert load_checkpoint(folder) is not None
        assert len([path for path in folder.iterdir() if ".damaged" not in path.name]) == len(old)


# What a killed save leaves


def save_killed(folder: Path, step: int, ending: str) -> None:
    """A process is killed where its checkpoint, or the hash of it, was to get its name."""
    pid = os.fork()
    if pid:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
        return
    rename = Path.replace

    def dying(path: Path, target: Path) -> Path:
        if path.name == f"step_{step:09d}{ending}.part":
            os._exit(9)
        return rename(path, target)

    Path.replace = dying  # pyright: ignore[reportAttributeAccessIssue]
    try:
        save_checkpoint(folder, step, {"x": torch.ones(3)}, keep=3)
    finally:
        os._exit(0)


def test_what_killed_saves_have_left_is_removed_where_the_run_goes_on(
    script: InProcess, small: list[str], tmp_path: Path
) -> None:
    words = [*small, "--fit.checkpoint_steps", "3", "--run.dir", "run", "--fit.epochs"]
    assert script("recipes/mae.py", *words, "0.1")[0] == 0
    folder = tmp_path / "run" / "checkpoints"
    save_killed(folder, 888_888_888, ".sha256")
    save_killed(folder, 999_999_999, ".pt")
    (folder / "step_000000777.part").mkdir()  # of one in parts
    (folder / "step_000000777.part" / "__0_0.distcp").write_bytes(bytes(99))
    for name in ("step_000000777.shards.sha256.part", "step_mine.part", "mine.part"):
        (folder / name).touch()
    assert len(list(folder.glob("*.part"))) == 6
    status, out, err = script("recipes/mae.py", *words, "0.2")
    assert status == 0 and "continues after step" in out, err
    assert sorted(path.name for path in folder.glob("*.part")) == ["mine.part", "step_mine.part"]


# Other readers


@pytest.mark.parametrize("content", RUBBISH.values(), ids=RUBBISH)
def test_objects_and_mappings_are_read_or_missing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    assert object_in(path) is None and mapping_in(path) is None
    with pytest.raises(UserError, match=r"file is missing; do this"):
        read_object(path, "do this")
    path.write_bytes(content)
    assert object_in(path) is None and mapping_in(path) is None
    with pytest.raises(UserError, match=r"file is damaged; do this"):
        read_object(path, "do this")


@pytest.mark.parametrize("name", ["config.yaml", "environment.json", "metrics.jsonl", "ended.json", "run.lock"])
@pytest.mark.parametrize("content", [*RUBBISH.values(), b'{"step": NaN}\n', b'{"script": 5, "step": 1e999}\n'])
def test_a_listing_shows_damaged_runs_as_such(tmp_path: Path, name: str, content: bytes) -> None:
    begun(tmp_path)
    (tmp_path / name).write_bytes(content)
    found = listing.read(tmp_path)
    assert isinstance(found, listing.Run) or "damaged" in found.why or "no run" in found.why


def npz(path: Path) -> dict[str, np.ndarray]:
    arrays = {
        "predicted": np.arange(50, dtype=np.int32), "units": np.linspace(0, 1, 50, dtype=np.float32),
        "matrix": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    }  # fmt: skip
    np.savez_compressed(path, **arrays)  # pyright: ignore[reportArgumentType]
    return arrays


def test_answers_come_back_as_they_were_kept(tmp_path: Path) -> None:
    arrays = npz(tmp_path / "a.npz")
    found = answers_beside(tmp_path / "a.json")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)
    assert answers_beside(tmp_path / "b.json") == {}


def test_every_flipped_bit_of_answers_is_found_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    arrays, refused = npz(path), 0
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content)
        flipped(path, place)
        try:
            found = answers_beside(tmp_path / "a.json")
        except UserError as error:
            assert "a.npz is damaged; remove it and a.json" in str(error)
            refused += 1
            continue
        same = [name for name in arrays if name in found and np.array_equal(found[name], arrays[name])]
        assert len(same) >= len(arrays) - 1, place  # the name of one may have changed: nothing guards it
    assert refused > len(content) // 2


def test_a_header_of_a_terabyte_takes_no_memory(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**11,)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("units.npy", header.getvalue() + bytes(100))
    with pytest.raises(UserError, match=r"a\.npz is damaged"):
        read_arrays(tmp_path / "a.npz", "go on")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        file = io.BytesIO()
        np.save(file, np.array([{}], dtype=object), allow_pickle=True)
        archive.writestr("units.npy", file.getvalue())
    with pytest.raises(UserError, match=r"b\.npz is damaged"):
        read_arrays(tmp_path / "b.npz", "go on")


def test_a_file_that_cannot_be_read_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("{}")

    def failing(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "read_bytes", failing)
    assert object_in(tmp_path / "file") is None


def test_a_result_is_read_as_json_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({"a": 1}))
    assert read_object(tmp_path / "file", "") == {"a": 1}
