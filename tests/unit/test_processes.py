"""Loader processes that die: their work is done again, an image that ends two is left out, and nothing hangs.

Where memory ran out (SIGKILL, SIGBUS) no image is to blame, and the run ends.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding import current
from ssl_vit.data.decoding.formats import Format, Unreadable
from ssl_vit.data.images import ImageSet, Sizes
from ssl_vit.data.loading import processes, workers
from ssl_vit.data.loading.cache import Cache
from ssl_vit.data.loading.loader import Batch, Loader, UnreadableLog, eval_batches
from ssl_vit.data.loading.processes import in_processes
from ssl_vit.data.sources.folder import FileRows

CPU = torch.device("cpu")
COUNT = 30


@pytest.fixture(autouse=True)
def nothing_in_quarantine() -> Iterator[None]:
    yield
    current.quarantined.clear()


def die(how: signal.Signals) -> None:
    faulthandler.disable()  # the tests' own
    os.kill(os.getpid(), how)


@dataclass(frozen=True)
class Deadly:
    """Files, some of which end the loader process that opens them: so many times, each time with a mark in a folder."""

    files: FileRows
    times: dict[int, int]
    how: int | signal.Signals
    marks: Path

    def __len__(self) -> int:
        return len(self.files)

    def raw(self, row: int) -> bytes:
        if row in self.times and multiprocessing.parent_process() is not None:
            for n in range(self.times[row]):
                try:
                    (self.marks / f"{row}-{n}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                if isinstance(self.how, signal.Signals):
                    die(self.how)
                os._exit(self.how)
        return self.files.raw(row)

    def where(self, row: int) -> str:
        return self.files.where(row)


def image_set(
    root: Path,
    times: dict[int, int] | None = None,
    how: int | signal.Signals = signal.SIGKILL,
    broken: int | None = None,
) -> ImageSet:
    """Image i is filled with grey level i."""
    root.mkdir()
    (marks := root.parent / f"{root.name}-marks").mkdir()
    names = [f"{i:02}.png" for i in range(COUNT)]
    for i, name in enumerate(names):
        Image.new("L", (4, 4), i).save(root / name)
    if broken is not None:
        (root / names[broken]).write_bytes(b"")
    rows = Deadly(FileRows(root, names), times or {}, how, marks)
    return ImageSet("files", rows, np.arange(COUNT), Format(1, 8), Sizes((4, 4), 4), "")


def load(images: ImageSet, workers: int, cache: Cache = "none") -> list[Batch]:
    loader = Loader(images, batch_size=7, micro_batch=7, seed=0, device=CPU, cache=cache, workers=workers)
    return list(loader.batches(0, 13))  # three epochs


def same(one: list[Batch], other: list[Batch]) -> bool:
    names = ("images", "index", "epoch")
    equal = (torch.equal(getattr(a, n), getattr(b, n)) for a, b in zip(one, other, strict=True) for n in names)
    return all(equal)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("cache", ["none", "ram"])
def test_what_a_process_that_was_killed_had_to_do_is_done_by_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: int, cache: Cache
) -> None:
    expected = load(image_set(tmp_path / "whole"), 0)
    images = image_set(tmp_path / "images", {4: 1, 17: 1})
    assert same(load(images, workers, cache), expected)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    for place in (4, 17):
        assert any(
            line == f"warning: a loader process ended while it decoded {images.where(place)}: ended by SIGKILL, as the "
            "system does where memory runs out; another one does its work again"
            for line in told
        )
    assert not current.quarantined


@pytest.mark.parametrize("how", [signal.SIGSEGV, 3])
@pytest.mark.parametrize("cache", ["none", "ram"])
def test_an_image_that_ends_two_processes_is_as_one_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: int | signal.Signals, cache: Cache
) -> None:
    expected = load(image_set(tmp_path / "whole", broken=9), 0)
    capsys.readouterr()
    images = image_set(tmp_path / "images", {9: 99}, how)
    assert same(load(images, 2, cache), expected)
    ended = "ended by SIGSEGV" if how == signal.SIGSEGV else "it left with status 3"
    assert current.quarantined == {images.where(9): f"two loader processes ended while they decoded it: {ended}"}
    assert f"warning: {images.where(9)} cannot be read (two loader processes ended" in capsys.readouterr().err
    # It is opened no more: neither by the other process, nor later, nor by this one.
    assert len(list((tmp_path / "images-marks").iterdir())) == 2
    assert same(load(images, 1, cache), expected)
    assert len(list((tmp_path / "images-marks").iterdir())) == 2
    with pytest.raises(Unreadable, match="two loader processes ended"):
        images.read(9)


def test_evaluation_leaves_out_an_image_that_ends_processes(tmp_path: Path) -> None:
    images = image_set(tmp_path / "images", {0: 2}, signal.SIGSEGV)
    log = UnreadableLog(images)
    seen = [i for batch in eval_batches(images, 4, CPU, log, 2) for i in batch.index.tolist()]
    assert seen == list(range(1, COUNT))
    assert list(log.reasons) == [0]


def test_many_images_that_end_processes_stop_the_run(tmp_path: Path) -> None:
    images = image_set(tmp_path / "images", dict.fromkeys(range(5), 2), signal.SIGSEGV)
    with pytest.raises(UserError, match=r"of 30 images cannot be read, more than 1%.*\n .*00\.png.*ended by SIGSEGV"):
        load(images, 2, "ram")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGBUS])
@pytest.mark.parametrize("cache", ["none", "ram"])
def test_an_image_at_which_memory_runs_out_is_not_left_out(tmp_path: Path, how: signal.Signals, cache: Cache) -> None:
    images = image_set(tmp_path / "images", {9: 99}, how)
    with pytest.raises(UserError) as caught:
        load(images, 2, cache)
    assert not current.quarantined
    told = str(caught.value)
    assert f"again and again, the last one while it decoded {images.where(9)}: ended by {how.name}, as " in told
    assert "; memory (or /dev/shm) does not suffice: use fewer --data.workers, or give the job more memory; " in told
    assert len(list((tmp_path / "images-marks").iterdir())) == 2


def test_a_batch_goes_through_the_pipe_where_shared_memory_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = load(image_set(tmp_path / "whole"), 0)

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("unable to allocate shared memory(shm): No space left on device (28)")

    tried = list[None]()
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", lambda *_, **__: tried.append(None))
    with monkeypatch.context() as patch:
        patch.setattr(current, "is_watched", lambda: True)
        patch.setattr(workers, "_free", lambda: 100)
        room = workers._room(7, np.zeros((1, 4, 4), dtype=np.uint8), shared=True)
    assert room.shape == (7, 1, 4, 4) and not tried  # which would leave an empty file
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", full)
    monkeypatch.setattr(torch.UntypedStorage, "_share_fd_cpu_", full)
    monkeypatch.setattr(torch.UntypedStorage, "_share_filename_cpu_", full)
    assert same(load(image_set(tmp_path / "images"), 2), expected)
    assert capsys.readouterr().err == ""


@dataclass(frozen=True)
class Ways:
    """Says whether an answer came through shared memory; an image ends processes, in that order."""

    marks: Path
    ends: tuple[signal.Signals, ...]
    shared: bool = True

    def where(self, image: int) -> str:
        return f"image {image}"

    def copied(self) -> Ways:
        return replace(self, shared=False)

    def __getitem__(self, key: int) -> tuple[int, bool] | None:
        try:
            current.begin(self.where, key)
        except Unreadable:
            return None
        for n, how in enumerate(self.ends if key == 1 else ()):
            if not (mark := self.marks / str(n)).exists():
                mark.touch()
                die(how)
        return key, self.shared


def test_the_next_process_does_without_shared_memory_where_that_was_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(in_processes(Ways(tmp_path, (signal.SIGBUS,)), range(3), 1))[1:] == [(1, False), (2, False)]
    assert capsys.readouterr().err == (
        "warning: a loader process ended while it decoded image 1: ended by SIGBUS, as where shared memory (/dev/shm) "
        "is full; another one does its work again, without shared memory\n"
    )


@pytest.mark.parametrize("other", [signal.SIGKILL, signal.SIGABRT])
def test_a_process_that_other_signals_end_leaves_the_way_as_it_was(tmp_path: Path, other: signal.Signals) -> None:
    assert list(in_processes(Ways(tmp_path, (other,)), range(3), 1))[1:] == [(1, True), (2, True)]


def test_memory_that_ran_out_once_does_not_add_to_what_an_image_did(tmp_path: Path) -> None:
    crash, starved = signal.SIGSEGV, signal.SIGKILL
    for n, ends in enumerate([(crash, starved), (starved, crash)]):
        (marks := tmp_path / f"once {n}").mkdir()
        assert list(in_processes(Ways(marks, ends), range(2), 1))[1] == (1, True)
    assert not current.quarantined
    with pytest.raises(UserError, match="memory"):
        (marks := tmp_path / "twice starved").mkdir()
        list(in_processes(Ways(marks, (starved, crash, signal.SIGBUS)), range(2), 1))
    (marks := tmp_path / "two crashes").mkdir()
    assert list(in_processes(Ways(marks, (starved, crash, crash)), range(2), 1))[1] is None
    assert current.quarantined == {"image 1": "two loader processes ended while they decoded it: ended by SIGSEGV"}


class Dying:
    """Ends its process before any image is opened."""

    def __getitem__(self, key: int) -> int:
        if key == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return key


def test_processes_that_die_without_an_image_stop_the_run() -> None:
    found = in_processes(Dying(), range(5), 2)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(
        UserError, match=r"loader processes end again and again: ended by SIGKILL.*same command goes on"
    ):
        next(found)


@dataclass(frozen=True)
class Twice:
    """Ends its process at an image: the first at once, those after it when the test has taken what they sent before."""

    marks: Path

    def where(self, image: int) -> str:
        return f"image {image}"

    def __getitem__(self, key: int) -> torch.Tensor:
        try:
            current.begin(self.where, key)
        except Unreadable:
            return torch.tensor(-key)
        if key == 2:
            count = len(list(self.marks.glob("death-*")))
            if count == 1:
                (self.marks / "gate").read_bytes()
            (self.marks / f"death-{count}").touch()
            die(signal.SIGSEGV)
        return torch.tensor(key).share_memory_()


@pytest.mark.processes
def test_an_answer_that_died_with_its_process_does_not_make_its_image_sound(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    found = in_processes(Twice(tmp_path), range(5), 1)
    assert int(next(found)) == 0
    for process in multiprocessing.active_children():
        process.join()  # it has answered 1, in memory that is gone with it, and died at 2
    assert int(next(found)) == 1
    (tmp_path / "gate").write_bytes(b"go")
    assert [int(one) for one in found] == [-2, 3, 4]
    assert current.quarantined == {"image 2": "two loader processes ended while they decoded it: ended by SIGSEGV"}
    assert len(list(tmp_path.glob("death-*"))) == 2


class Squares:
    """Large answers to large keys, and mistakes."""

    def __getitem__(self, key: np.ndarray) -> np.ndarray:
        if key[0] == 5:
            raise ValueError("no five")
        if key[0] == 6:
            raise Holding(lambda: 0)
        return key * key


class Holding(Exception):
    """Cannot be sent to another process."""

    def __init__(self, what: Any) -> None:
        super().__init__("six")
        self.what = what


def test_keys_and_answers_that_fill_pipes_come_in_order() -> None:
    keys = [np.full(200_000, n) for n in (1, 2, 3, 4, 7, 8, 9)]  # 1.6 MB each, more than a pipe holds
    found = list(in_processes(Squares(), iter(keys), 2))
    assert [int(one[-1]) for one in found] == [1, 4, 9, 16, 49, 64, 81]


class Foreign:
    """What only the process that made it may free, in a circle that only a collection of garbage finds."""

    def __init__(self) -> None:
        self.circle, self.owner = self, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.owner:
            os._exit(1)


@dataclass(frozen=True)
class Collecting:
    """Work that has garbage collected."""

    def __getitem__(self, key: int) -> int:
        gc.collect()
        return 2 * key


def test_garbage_of_the_process_that_starts_them_is_not_freed_in_them() -> None:
    gc.disable()
    try:
        Foreign()
        assert list(in_processes(Collecting(), range(4), 2)) == [0, 2, 4, 6]
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert list(in_processes(Collecting(), range(2), 1)) == [0, 2]
    assert gc.isenabled()


def test_answers_that_nobody_takes_keep_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_PATIENCE", 1e6)  # they end by themselves, and are not waited for
    found = in_processes(Squares(), iter([np.full(2_000_000, 2)] * 8), 2)
    assert next(found)[0] == 4
    workers = multiprocessing.active_children()
    assert isinstance(found, Generator)
    found.close()
    assert len(workers) == 2 and not multiprocessing.active_children()


def test_a_mistake_comes_where_its_answer_would_with_its_place() -> None:
    for wrong, kind, words in ((5, ValueError, "no five"), (6, RuntimeError, "in a loader process:.*six")):
        found = in_processes(Squares(), [np.array([1]), np.array([wrong]), np.array([2])], 1)
        assert next(found).tolist() == [1]
        with pytest.raises(kind, match=f"(?s){words}") as caught:
            next(found)
        assert "__getitem__" in "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_keys_are_taken_when_a_process_is_sent_for_them() -> None:
    taken: list[int] = []

    def keys() -> Iterator[np.ndarray]:
        for n in (1, 2, 3, 4, 7, 8, 9, 10):
            taken.append(n)
            yield np.array([n])

    found = in_processes(Squares(), keys(), 1)
    assert not taken
    next(found)
    assert taken == [1, 2, 3]  # two ahead of what is used


BEGINS = """
import os, signal, sys, multiprocessing
import numpy as np
from ssl_vit.data.loading import processes
from ssl_vit.data.loading.processes import in_processes

class Work:
    def __getitem__(self, key):
        return os.getpid()

def main():
    global found
    found = in_processes(Work(), iter(range(1000)), 2)
    print(*{next(found), next(found)}, flush=True)
"""


def processes_of(end: str) -> tuple[int, list[psutil.Process], str]:
    """Status of a program that has started two loader processes and ends so, what they were, and what it said."""
    done = subprocess.Popen(
        [sys.executable, "-c", f"{BEGINS}\n{end}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdin and done.stdout
    workers = [psutil.Process(int(word)) for word in done.stdout.readline().split()]
    _, said = done.communicate("\n", timeout=300)
    return done.returncode, workers, said


WAITS = "main(); sys.stdin.readline()"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("end", "status"),
    [(f"{WAITS}; raise ValueError('in the middle')", 1),  # what is not used up is held by the traceback
     (f"{WAITS}; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
     (f"{WAITS}; os._exit(5)", 5)],
)  # fmt: skip
def test_no_process_outlives_the_one_that_started_it(end: str, status: int) -> None:
    ended, workers, said = processes_of(end)
    assert ended == status, said
    gone, alive = psutil.wait_procs(workers, timeout=300)
    assert len(gone) == 2 and not alive


SPAWNED = """
import atexit, gc, multiprocessing, os
from ssl_vit.data.loading.processes import in_processes

class Work:
    def __getitem__(self, key):
        return key

atexit.register(lambda: os.write(1, b"%d put aside\\n" % gc.get_freeze_count()))
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    assert list(in_processes(Work(), range(3), 1)) == [0, 1, 2]
"""


@pytest.mark.processes
def test_a_process_that_was_not_forked_cleans_up_at_its_end(tmp_path: Path) -> None:
    """Or libraries that were imported in it say that they leak."""
    (tmp_path / "spawned.py").write_text(SPAWNED)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "spawned.py")], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "0 put aside\n" * 2), done.stderr
