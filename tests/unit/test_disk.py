"""Disks that fill up, forbid or forget: one line says what is safe, nothing half is left, and the old stays whole."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from ssl_vit.core import files
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import append_line, check_space, own_cache, whole, write_atomically
from ssl_vit.runs import disk, lock
from ssl_vit.runs.directory import RunDir
from ssl_vit.training.checkpoint import load_checkpoint, save_checkpoint

from made_scripts import InProcess


@contextmanager
def largest(size: int) -> Iterator[None]:
    """Files may not grow larger, as with ``ulimit -f``: the nearest thing to a full disk that a test may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_does_not_fit_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    with largest(1000):
        check_space(path, 1000)
        with pytest.raises(OSError, match=r"1,001 bytes of 1,000 allowed") as caught:
            check_space(path, 1001)
        check_space(path, 3000, largest=1000)  # several files
        with pytest.raises(OSError, match=r"1,001 bytes of 1,000 allowed"):
            check_space(path, 3000, largest=1001)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: (10**9, 0, 500))
    with pytest.raises(OSError, match=r"501 bytes are needed, 500 free") as caught:
        check_space(path, 501)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: (0, 0, 0))  # a disk that tells nothing of itself
    check_space(path, 501)


def test_a_file_that_cannot_be_finished_leaves_the_old_one_and_no_part(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    with largest(1000), pytest.raises(OSError) as caught, whole(path) as file:
        file.write(bytes(2000))
        file.flush()
    assert caught.value.filename == str(path)
    with pytest.raises(KeyboardInterrupt), whole(path) as file:
        raise KeyboardInterrupt
    assert (path.read_text(), names(tmp_path)) == ("old", ["file"])


def test_a_line_is_added_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, "x" * 99)
    with largest(110), pytest.raises(OSError) as caught:
        append_line(path, "y" * 50)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
    assert path.read_text() == "x" * 99 + "\n"


@pytest.mark.parametrize("checked", [True, False])
def test_a_checkpoint_that_does_not_fit_leaves_the_ones_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checked: bool
) -> None:
    if not checked:  # space that is gone by the time it is written
        monkeypatch.setattr("ssl_vit.training.checkpoint.check_space", lambda *_: None)
    state = {"x": torch.ones(500_000), "view": torch.ones(4, 500_000)[0]}
    save_checkpoint(tmp_path, 1, {"x": torch.ones(2)}, keep=1)
    before = names(tmp_path)
    with largest(1_900_000), pytest.raises(OSError) as caught:
        save_checkpoint(tmp_path, 2, state, keep=1)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(tmp_path / "step_000000002.pt")
    assert names(tmp_path) == before
    found = load_checkpoint(tmp_path)
    assert found is not None and found["step"] == 1


def test_a_checkpoint_that_just_fits_is_written(tmp_path: Path) -> None:
    state = {"x": torch.ones(1000), "names": ["a"] * 50}
    save_checkpoint(tmp_path, 1, state, keep=2)
    with largest((tmp_path / "step_000000001.pt").stat().st_size):
        save_checkpoint(tmp_path, 2, state, keep=2)
    found = load_checkpoint(tmp_path)
    assert found is not None and found["step"] == 2


def test_a_folder_of_several_files_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "backbone"
    with files.whole_folder(folder) as part:
        write_atomically(part / "a", "old")
        write_atomically(part / "b", "old")
        assert not folder.exists()
    with largest(1000), pytest.raises(OSError), files.whole_folder(folder) as part:
        write_atomically(part / "a", "new")
        write_atomically(part / "b", "x" * 2000)
    assert names(tmp_path) == ["backbone"]
    assert [(folder / name).read_text() for name in names(folder)] == ["old", "old"]


def test_a_checkpoint_does_not_bring_a_deleted_run_back(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        save_checkpoint(tmp_path / "gone" / "checkpoints", 1, {}, keep=1)
    assert not names(tmp_path)


def raised(code: int, path: Path | None) -> OSError:
    return OSError(code, os.strerror(code), *([str(path)] if path else []))


def test_errors_of_a_disk_are_told_with_what_is_safe(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    for step in (20, 40):
        save_checkpoint(run / "checkpoints", step, {}, keep=2)
    (run / "checkpoints" / "step_000000060.pt").touch()  # without a hash
    safe = f"step 40 is safe in {run / 'checkpoints'}"
    for code, what in (
        (errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "the quota"), (errno.EFBIG, "ulimit -f"),
        (errno.EROFS, "can only be read"), (errno.EIO, "the disk failed"), (errno.EACCES, "nothing can be written"),
    ):  # fmt: skip
        words = disk.told(raised(code, run / "metrics.jsonl"), [run])
        assert words is not None
        assert what in words and safe in words and str(run / "metrics.jsonl") in words
        assert "the same command goes on" in words and "\n" not in words
    words = disk.told(raised(errno.ENOSPC, None), [run])
    assert words is not None and safe in words
    (run / "checkpoints" / "step_000000080.shards.sha256").touch()  # in parts
    (run / "checkpoints" / "step_mine.sha256").touch()
    words = disk.told(raised(errno.ENOSPC, None), [run])
    assert words is not None and f"step 80 is safe in {run / 'checkpoints'}" in words
    elsewhere = disk.told(raised(errno.ENOSPC, tmp_path / "other"), [])
    assert elsewhere is not None and "what was complete is safe" in elsewhere


def test_other_errors_are_not_of_the_disk(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    assert disk.told(raised(errno.EACCES, tmp_path / "image.png"), [run]) is None
    assert disk.told(raised(errno.ENOENT, run / "missing"), [run]) is None  # a mistake of this program
    assert disk.told(OSError("no number"), [run]) is None
    with pytest.raises(FileNotFoundError), disk.disk_told():
        (tmp_path / "nothing").read_bytes()


def test_a_run_that_was_deleted_meanwhile_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with (
        pytest.raises(UserError, match=r"removed or moved meanwhile.*no step is saved yet in .*run"),
        lock.holding(),
        disk.disk_told(),
    ):
        lock.hold(folder)
        run = RunDir(folder, writes=True)
        run.log({"step": 1})
        shutil.rmtree(folder)
        run.log({"step": 2})
    assert not folder.exists()


def test_a_run_that_a_file_has_taken_the_place_of_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(UserError, match=r"removed or moved meanwhile"), lock.holding(), disk.disk_told():
        lock.hold(folder)
        shutil.rmtree(folder)
        folder.write_text("mine")
        RunDir(folder, writes=True).log({"step": 2})
    assert folder.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_run_that_may_not_be_written_any_more_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing can be written any more"), lock.holding(), disk.disk_told():
        lock.hold(tmp_path)
        tmp_path.chmod(0o500)
        try:
            RunDir(tmp_path, writes=True).log({"step": 1})
        finally:
            tmp_path.chmod(0o700)


@pytest.mark.parametrize("size", [440_000, 400_000, 2000])
def test_a_command_on_a_disk_that_fills_up_ends_with_one_line_and_goes_on_later(
    script: InProcess, small: list[str], tmp_path: Path, size: int
) -> None:
    words = [*small, "--fit.epochs", "0.2", "--fit.checkpoint_steps", "3", "--run.dir", "run"]
    with largest(size):
        status, _, err = script("recipes/mae.py", *words)
    assert status == 1
    *_, last = err.splitlines()
    assert last.startswith("error: a file may not grow so large (ulimit -f)"), err
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("*.part"))
    status, _, err = script("recipes/mae.py", *words)
    assert status == 0, err


def test_names_are_on_the_disk_before_a_file_counts_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    replace: Callable[..., Path] = Path.replace
    sync: Callable[[int], None] = os.fsync

    def synced(number: int) -> None:
        done.append("folder" if Path(f"/proc/self/fd/{number}").is_dir() else "file")
        sync(number)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", lambda *given: (done.append("name"), replace(*given))[1])
    write_atomically(tmp_path / "file", "text")
    assert done == ["file", "name", "folder"]


def test_a_user_without_a_home_has_a_cache_for_a_while(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As containers run programs: no HOME, and a number that no user has."""

    def nobody(number: int) -> None:
        raise KeyError(number)

    for name in ("HOME", "SSL_VIT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert own_cache().parent == tmp_path and own_cache().is_dir()
    assert own_cache() == own_cache()
    monkeypatch.setenv("SSL_VIT_CACHE", str(tmp_path / "own"))
    assert own_cache() == tmp_path / "own"


@pytest.mark.parametrize(("change", "stays"), [("", True), ("b", False), ("c", False), ("README.md", False)])
def test_a_folder_that_holds_the_same_already_keeps_what_people_added(change: str, stays: bool, tmp_path: Path) -> None:
    def write(content: str = "1") -> None:
        with files.whole_folder(tmp_path / "net", edited="README.md") as part:
            write_atomically(part / "README.md", "card")
            write_atomically(part / "b", content)

    write()
    (tmp_path / "net" / "README.md").write_text("card, mine")
    (tmp_path / "net" / "LICENSE").write_text("mine")
    if change == "README.md":
        (tmp_path / "net" / change).unlink()
    elif change == "c":
        (tmp_path / "net" / "b").write_text("damaged")
    write("2" if change == "b" else "1")
    assert (tmp_path / "net" / "README.md").read_text() == ("card, mine" if stays else "card")
    assert (tmp_path / "net" / "LICENSE").exists() == stays
    assert (tmp_path / "net" / "b").read_text() == ("2" if change == "b" else "1")
    assert names(tmp_path) == ["net"]
