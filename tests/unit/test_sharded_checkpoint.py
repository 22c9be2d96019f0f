"""Checkpoints in parts: no code of theirs is run, and what is damaged is passed over."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import sha256
from ssl_vit.training import sharded_checkpoint, shards
from ssl_vit.training.sharded_checkpoint import read, read_one
from ssl_vit.training.shards import newest_whole, remove
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def hashed(place: Path) -> None:
    """Notes the hashes of its files, as they are now."""
    lines = "".join(f"{sha256(path)}  {path.name}\n" for path in sorted(place.iterdir()))
    place.with_suffix(".shards.sha256").write_text(lines)


def made(folder: Path, step: int, **tensors: torch.Tensor) -> Path:
    """A checkpoint in parts, as one process writes it."""
    place = folder / f"step_{step:09d}.shards"
    save(dict(tensors), storage_writer=FileSystemWriter(str(place)), no_dist=True)
    torch.save({"step": step}, place / "rest.pt")
    hashed(place)
    return place


class Runs:
    """Makes a file where it is unpickled by a reader that runs code."""

    def __init__(self, function: Callable[..., Any], *words: Any) -> None:
        self.reduced = function, words

    def __reduce__(self) -> Any:
        return self.reduced


def test_it_comes_back_in_every_type(tmp_path: Path) -> None:
    kinds = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]
    tensors = {str(kind): torch.arange(6).reshape(2, 3).to(kind) for kind in kinds}
    found = newest_whole(made(tmp_path, 7, **tensors, one=torch.tensor(3.0)).parent)
    assert found is not None and found[0] == 7
    back, rest = read(found[1], lambda _, size, dtype: torch.empty(size, dtype=dtype), None)
    assert rest == {"step": 7} and back.keys() == {*tensors, "one"}
    assert all(torch.equal(back[name], value) and back[name].dtype == value.dtype for name, value in tensors.items())
    assert read_one(found[1], "other") is None
    remove(found[1])
    assert not list(tmp_path.iterdir())


def hostile(call: Runs) -> list[bytes]:
    """Pickles that call something, by all that a pickle has for it."""
    function, words = call.reduced
    module, name = function.__module__, function.__qualname__
    old = f"(S{words[0]!r}\ni{module}\n{name}\n.".encode()
    return [pickle.dumps(call, protocol) for protocol in range(6)] + [old]


@pytest.mark.parametrize(
    "number", range(len(hostile(Runs(os.mkdir, "x")))), ids=[f"protocol {n}" for n in range(6)] + ["instance"]
)
def test_code_in_a_checkpoint_is_not_run_and_the_one_before_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    mark = tmp_path / "mark"
    content = hostile(Runs(os.mkdir, str(mark)))[number]
    pickle.loads(content)
    mark.rmdir()  # a reader that runs code makes it
    folder = tmp_path / "checkpoints"
    made(folder, 1, x=torch.ones(2))
    for step, name in ((2, ".metadata"), (3, "rest.pt")):
        place = made(folder, step, x=torch.ones(2))
        (place / name).write_bytes(content)
        hashed(place)
    found = newest_whole(folder)
    assert found is not None and found[0] == 1
    assert not mark.exists()
    told = capsys.readouterr().err
    assert all(f"step_00000000{step}.shards is damaged or incomplete; an older one is used" in told for step in (2, 3))


@pytest.mark.parametrize("where", ["read", "read_one"])
def test_who_reads_a_place_that_is_named_runs_no_code_either(tmp_path: Path, where: str) -> None:
    place = made(tmp_path, 1, x=torch.ones(2))
    (place / ".metadata").write_bytes(pickle.dumps(Runs(os.mkdir, str(tmp_path / "mark"))))
    with pytest.raises(pickle.UnpicklingError, match=r"posix\.mkdir is no part of a checkpoint"):
        _ = read_one(place, "x") if where == "read_one" else read(place, lambda *_: torch.ones(2), None)
    assert not (tmp_path / "mark").exists()


def of_another_step(place: Path) -> None:
    torch.save({"step": 9}, place / "rest.pt")


def of_other_values(place: Path) -> None:
    torch.save([1, 2], place / "rest.pt")


def no_metadata(place: Path) -> None:
    (place / ".metadata").write_bytes(pickle.dumps({"state_dict_metadata": {}}))


def numbers_for_tensors(place: Path) -> None:
    metadata = pickle.loads((place / ".metadata").read_bytes())
    metadata.state_dict_metadata = 7
    (place / ".metadata").write_bytes(pickle.dumps(metadata))


def half(place: Path) -> None:
    (place / ".metadata").write_bytes((place / ".metadata").read_bytes()[:-9])


def gone(place: Path) -> None:
    (place / "rest.pt").unlink()


@pytest.mark.parametrize("damage", [of_another_step, of_other_values, no_metadata, numbers_for_tensors, half, gone])
def test_what_has_the_right_hash_and_is_no_checkpoint_is_passed_over(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    made(tmp_path, 1, x=torch.ones(2))
    place = made(tmp_path, 2, x=torch.ones(2))
    damage(place)
    hashed(place)
    found = newest_whole(tmp_path)
    assert found is not None and found[0] == 1


@pytest.mark.parametrize("where", ["hashes", "a part", "the rest", "weights"])
@pytest.mark.parametrize("error", [OSError(errno.ESTALE, "Stale file handle"), MemoryError()])
def test_what_cannot_be_read_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str, error: Exception
) -> None:
    made(tmp_path, 1, x=torch.ones(2))
    place = made(tmp_path, 2, x=torch.ones(2))

    def fails(*_: Any, **__: Any) -> Any:
        raise error

    with monkeypatch.context() as patch:
        if where == "hashes":
            patch.setattr(shards, "content_of", fails)
        elif where == "a part":
            patch.setattr(shards, "sha256", fails)
        elif where == "the rest":
            patch.setattr(sharded_checkpoint.torch, "load", fails)
        else:
            patch.setattr(sharded_checkpoint.FileSystemReader, "read_data", fails)
        with pytest.raises(UserError, match="nothing was changed, and the same command goes on once it can be") as told:
            read_one(place, "x") if where == "weights" else newest_whole(tmp_path)
    assert str(place) in str(told.value)
    assert "damaged" not in capsys.readouterr().err
    found = newest_whole(tmp_path)
    assert found is not None and found[0] == 2


def a_pipe(place: Path) -> None:
    (place / "rest.pt").unlink()
    os.mkfifo(place / "rest.pt")


def a_file(place: Path) -> None:
    shutil.rmtree(place)
    place.touch()


def a_folder_for_hashes(place: Path) -> None:
    place.with_suffix(".shards.sha256").unlink()
    place.with_suffix(".shards.sha256").mkdir()


def no_hashes(place: Path) -> None:
    place.with_suffix(".shards.sha256").unlink()


@pytest.mark.parametrize("damage", [a_pipe, a_file, a_folder_for_hashes, no_hashes])
def test_what_is_no_file_or_missing_is_damaged(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    made(tmp_path, 1, x=torch.ones(2))
    damage(made(tmp_path, 2, x=torch.ones(2)))
    found = newest_whole(tmp_path)
    assert found is not None and found[0] == 1
