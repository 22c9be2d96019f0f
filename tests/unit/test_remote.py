"""Files that are elsewhere: read in blocks, kept within bounds, asked for again; the same images as those of a disk."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from ssl_vit.configs import PoolConfig, SourceConfig
from ssl_vit.configs.paths import check_paths, is_remote
from ssl_vit.core.errors import UserError
from ssl_vit.data.sources import locate, remote
from ssl_vit.data.sources.remote import BlockCache, RemoteFile, Unreachable, remote_files
from ssl_vit.methods.mae import MAERecipe
from torch.utils.data import DataLoader, Dataset

CONTENT = bytes(range(256)) * 8


class Storage:
    """One object that is read as its script says: what an answer is made of, one after another."""

    def __init__(self, *answers: Callable[[bytes], bytes]) -> None:
        self.answers, self.asked = list(answers), list[tuple[int, int]]()

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        self.asked.append((start, end))
        whole = CONTENT[start:end]
        return self.answers.pop(0)(whole) if self.answers else whole


def fails(error: Exception) -> Callable[[bytes], bytes]:
    def answer(whole: bytes) -> bytes:
        raise error

    return answer


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(remote, "_wait", found.append)
    return found


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Storage]:
    def made(*answers: Callable[[bytes], bytes]) -> Storage:
        found = Storage(*answers)
        monkeypatch.setattr(remote, "_storage", lambda url: found)
        return found

    return made


def file(folder: Path, most: int = 10**6) -> RemoteFile:
    return RemoteFile("s3://bucket/a/train-0.tar", len(CONTENT), "v1", BlockCache(folder, most))


def kept(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.exists() else 0


def blocks(folder: Path) -> list[Path]:
    return list(folder.glob("[!.]*"))


def test_what_it_is_called(tmp_path: Path) -> None:
    one = file(tmp_path)
    assert (one.name, one.stem, one.suffix, str(one.parent)) == ("train-0.tar", "train-0", ".tar", "s3://bucket/a")
    assert str(one) == "s3://bucket/a/train-0.tar"
    assert one.stat().st_size == len(CONTENT)


@given(
    reads=st.lists(st.tuples(st.integers(0, 2100), st.integers(0, 700)), max_size=12), block=st.integers(50, 3000),
    most=st.integers(0, 3000),
)  # fmt: skip
@example(reads=[(0, 12), (5, 3), (40, 20)], block=1, most=30)  # a file per block, so few of so small ones
def test_any_part_is_what_it_is_on_a_disk(
    reads: list[tuple[int, int]], block: int, most: int, tmp_path_factory
) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "BLOCK", block)
        patch.setattr(remote, "_storage", lambda url: Storage())
        own, there = file(folder, most).open(), io.BytesIO(CONTENT)
        for start, count in reads:
            assert own.seek(start) == there.seek(start)
            assert own.read(count) == there.read(count)
            assert kept(folder) <= most
        assert own.seek(-10, io.SEEK_END) == there.seek(-10, io.SEEK_END)
        assert own.read() == there.read()


def test_a_block_is_asked_for_once(tmp_path: Path, storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "BLOCK", 512)
    there = storage()
    one, again = file(tmp_path), file(tmp_path)  # as another process opens it
    for own in (one, one, again):
        assert own.read_at(500, 30) == CONTENT[500:530]
    assert there.asked == [(0, 512), (512, 1024)]
    other = RemoteFile(one.url, one.size, "v2", one.cache)
    other.read_at(0, 1)
    assert there.asked[2:] == [(0, 512)]  # new content has a new version


def test_what_was_read_longest_ago_goes_first(tmp_path: Path, storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "BLOCK", 256)
    times = iter(range(1, 100))
    usual = remote.os.utime
    monkeypatch.setattr(remote.os, "utime", lambda path: usual(path, (0, next(times))))
    there = storage()
    one = file(tmp_path, most=4 * 256)
    for number in (0, 1, 2, 3):
        one.read_at(256 * number, 1)
        one.read_at(256 * number, 1)  # read again: its time is the test's
    one.read_at(0, 1)
    one.read_at(4 * 256, 1)  # makes room: blocks 1 and 2 go, nine tenths stay
    there.asked.clear()
    for number in (0, 3, 4):
        one.read_at(256 * number, 1)
    assert there.asked == []
    one.read_at(256, 1)
    assert there.asked == [(256, 512)]


def test_what_processes_keep_together_is_within_the_bound(
    tmp_path: Path, storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "BLOCK", 128)
    storage()
    every = [file(tmp_path, most=5 * 128) for _ in range(4)]  # as four processes open it
    for turn in range(16):
        every[turn % 4].read_at(128 * turn, 1)
        assert 128 * min(turn + 1, 4) <= kept(tmp_path) <= 5 * 128


def test_a_block_that_is_not_whole_on_the_disk_is_fetched_again(tmp_path: Path, storage) -> None:
    there = storage()
    one = file(tmp_path)
    one.read_at(0, 5)
    (path,) = blocks(tmp_path)
    path.write_bytes(b"half")
    assert one.read_at(0, 5) == CONTENT[:5]
    assert len(there.asked) == 2


def test_a_disk_that_cannot_be_written_keeps_nobody_from_reading(tmp_path: Path, storage) -> None:
    storage()
    (tmp_path / "blocks").write_text("in the way")
    assert file(tmp_path / "blocks").read_at(0, 5) == CONTENT[:5]


@pytest.mark.parametrize("why", ["no room", "a disk that cannot be written"])
def test_a_block_that_the_disk_does_not_keep_is_asked_for_once(
    why: str, tmp_path: Path, storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "BLOCK", 512)
    there = storage()
    (tmp_path / "blocks").write_text("in the way")
    with file(tmp_path / "blocks", 0 if why == "no room" else 10**6).open() as own:
        assert b"".join(iter(lambda: own.raw.read(60), b"")) == CONTENT
    assert len(there.asked) == 4
    assert len(remote._unkept) == 1


def test_what_does_not_come_or_not_whole_is_asked_for_again(tmp_path: Path, storage, waits: list[float]) -> None:
    there = storage(
        fails(TimeoutError()), lambda whole: whole[:100], fails(OSError(5, "InternalError")), lambda whole: whole + b"x"
    )
    assert file(tmp_path).read_at(0, 5) == CONTENT[:5]
    assert len(there.asked) == 5
    assert waits == [0.5, 1.0, 2.0, 4.0]
    assert kept(tmp_path) == len(CONTENT)  # nothing that was not whole


def test_what_never_comes_ends_the_run(tmp_path: Path, storage, waits: list[float]) -> None:
    storage(*[lambda whole: whole[:7]] * remote.TRIES)
    with pytest.raises(Unreachable, match=r"train-0.tar cannot be read \(7 of 2,048 bytes came\), though .* 7 times"):
        file(tmp_path).read_at(0, 5)
    assert sum(waits) == pytest.approx(31.5)
    assert not isinstance(Unreachable(""), OSError)  # no image takes the place of one that does not come


class Shaky:
    """A storage whose every answer comes at the third try."""

    def __init__(self, there: Any) -> None:
        self.there, self.asked = there, dict[str, int]()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def answer(*args: Any, **options: Any) -> Any:
            if name == "invalidate_cache":  # which asks nobody
                return None
            self.asked[name] = self.asked.get(name, 0) + 1
            if self.asked[name] % 3:
                raise OSError(5, "InternalError")
            return getattr(self.there, name)(*args, **options)

        return answer


def test_lists_and_sizes_are_asked_for_again_too(
    tmp_path: Path, memory: Any, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "here", ".tar")
    memory.put(str(tmp_path / "here"), "/bucket/there", recursive=True)
    shaky = Shaky(memory)
    monkeypatch.setattr(remote, "_storage", lambda url: shaky)
    files, _ = remote_files("s3://bucket/there", None)
    assert [one.size for one in files] == [path.stat().st_size for path in sorted((tmp_path / "here").iterdir())]
    assert [one.size for one in remote_files("s3://bucket/there/test-0.tar", None)[0]] == [files[0].size]
    assert shaky.asked == {"ls": 3, "exists": 3, "info": 12}
    assert waits == [0.5, 1.0] * 6


def test_a_mistake_of_this_program_is_none_of_the_network(tmp_path: Path, storage, waits: list[float]) -> None:
    storage(fails(TypeError("wrong")))
    with pytest.raises(TypeError, match="wrong"):
        file(tmp_path).read_at(0, 5)
    assert waits == []


@pytest.mark.parametrize(
    ("error", "told"),
    [(FileNotFoundError("x"), "there is nothing at s3://"), (PermissionError("No"), r"may not be read \(No\)")],
)  # fmt: skip
def test_what_will_not_change_is_not_waited_for(
    error: Exception, told: str, tmp_path: Path, storage, waits: list[float]
) -> None:
    storage(fails(error))
    with pytest.raises(UserError, match=told):
        file(tmp_path).read_at(0, 5)
    assert waits == []


class Never(Dataset[int]):
    """Raises in a process that loads."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        raise Unreachable("s3://bucket/x cannot be read (nothing came)")


def test_it_is_one_line_from_another_process_as_well() -> None:
    with pytest.raises(Unreachable) as raised:
        next(iter(DataLoader(Never(), num_workers=1, generator=torch.Generator())))
    assert str(raised.value) == "s3://bucket/x cannot be read (nothing came)"


def images(count: int) -> list[bytes]:
    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        out = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (6, 6), dtype=np.uint8)).save(out, "PNG")
        found.append(out.getvalue())
    return found


def write(folder: Path, kind: str) -> None:
    """Two files of a train split, one of a test split."""
    folder.mkdir()
    for part, name in enumerate(("train-0", "train-1", "test-0")):
        found = images(12)[4 * part : 4 * part + 4]
        if kind == ".parquet":
            table = pyarrow.table({"image": found, "label": [0, 1, 1, 0]})
            pyarrow.parquet.write_table(table, folder / f"{name}.parquet", row_group_size=2)
            continue
        with tarfile.open(folder / f"{name}.tar", "w") as tar:
            for i, data in enumerate(found):
                for ending, content in (("png", data), ("cls", str(i % 2).encode())):
                    info = tarfile.TarInfo(f"{part}{i}.{ending}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """fsspec's own storage in memory, under an address that is read."""
    storage = fsspec.filesystem("memory")
    monkeypatch.setattr(remote, "_storage", lambda url: storage)
    monkeypatch.setattr(remote, "_inside", lambda url: "/" + url.partition("://")[2].lstrip("/"))
    monkeypatch.setenv("SSL_VIT_CACHE", str(tmp_path / "cache"))
    yield storage
    storage.store.clear()
    storage.pseudo_dirs[:] = [""]


@pytest.mark.parametrize("kind", [".tar", ".parquet"])
def test_images_and_labels_are_those_of_a_disk(kind: str, tmp_path: Path, memory: Any) -> None:
    write(tmp_path / "here", kind)
    memory.put(str(tmp_path / "here"), "/bucket/there", recursive=True)
    here = locate.open_source(SourceConfig(path=str(tmp_path / "here"), stream=True), labelled=True)
    there = locate.open_source(SourceConfig(path="s3://bucket/there/"), labelled=True)
    assert set(here) == set(there) == {"train", "test"}
    for split, part in here.items():
        other = there[split]
        assert part.fingerprint == other.fingerprint  # a run goes on where its images have moved
        assert [part.rows.raw(i) for i in range(len(part.rows))] == [other.rows.raw(i) for i in range(len(other.rows))]
        assert np.array_equal(part.labels, other.labels)
        assert np.array_equal(part.blocks, other.blocks)
        assert other.rows.where(0).startswith("s3://bucket/there/")
    (one,) = locate.open_source(SourceConfig(path=f"s3://bucket/there/train-0{kind}"), labelled=False).values()
    assert len(one.rows) == 4


def test_one_kind_of_files_is_read_here_and_there(
    tmp_path: Path, memory: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "here", ".tar")
    write(tmp_path / "tables", ".parquet")
    for table in (tmp_path / "tables").iterdir():
        table.rename(tmp_path / "here" / table.name)
    memory.put(str(tmp_path / "here"), "/bucket/both", recursive=True)
    (here, there) = (
        locate.open_source(SourceConfig(path=path), labelled=False)["train"]
        for path in (str(tmp_path / "here"), "s3://bucket/both")
    )
    assert here.fingerprint == there.fingerprint
    said = capsys.readouterr().err
    assert "images are read from test-0.tar and others in" in said
    assert "note: images are read from .tar files in s3://bucket/both; 3 .parquet file(s) are not\n" in said


def test_what_cannot_be_read_is_named(memory: Any) -> None:
    memory.pipe("/bucket/photos/a.jpg", b"x")
    with pytest.raises(UserError, match=r"s3://bucket/photos holds no .tar or .parquet files \(there: a.jpg\)"):
        remote_files("s3://bucket/photos", None)
    for path in ("s3://bucket/nothing", "s3://bucket/photos/b.tar"):
        with pytest.raises(UserError, match=rf"there is nothing at {path}|holds no"):
            remote_files(path, None)


@pytest.mark.parametrize("path", ["s3://", "s3:///", "hf://", "hf://datasets", "hf://datasets/x/", "hf://x"])
def test_addresses_that_are_not_whole(path: str) -> None:
    with pytest.raises(UserError, match=f"^{path} is no whole address; give s3://BUCKET/FOLDER or hf://datasets/"):
        remote_files(path, None)


@pytest.mark.parametrize("path", ["gs://bucket/x", "https://example.org/a.tar"])
def test_addresses_of_another_kind_are_told_those_that_are_read(path: str) -> None:
    with pytest.raises(UserError, match=f"^there is no file or folder {path}; .* in s3:// and hf:// are"):
        check_paths(MAERecipe(data=PoolConfig(path=path)))


class Remembering(MemoryFileSystem):
    """Keeps its lists until it is told not to, as those of s3:// and hf:// do."""

    cachable = False

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = path.rstrip("/")
        if path not in self.dircache:
            self.dircache[path] = super().ls(path, detail=True)
        return list(self.dircache[path])

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return (self._ls_from_cache(path) or [super().info(path)])[0]

    def invalidate_cache(self, path: str | None = None) -> None:
        self.dircache.clear()


def test_one_process_sees_what_a_bucket_holds_now(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    remembering = Remembering()
    monkeypatch.setattr(remote, "_storage", lambda url: remembering)
    memory.pipe("/bucket/there/0.tar", b"x" * 5)
    found = [remote_files("s3://bucket/there", None)[0]]
    memory.pipe({"/bucket/there/0.tar": b"x" * 7, "/bucket/there/1.tar": b"x" * 9})
    found.append(remote_files("s3://bucket/there", None)[0])
    memory.pipe("/bucket/there/0.tar", b"x" * 8)
    found.append(remote_files("s3://bucket/there/0.tar", None)[0])
    assert [[file.size for file in files] for files in found] == [[5], [7, 9], [8]]


def test_addresses() -> None:
    assert is_remote("s3://bucket/x")
    assert is_remote("hf://datasets/owner/name")
    assert not any(map(is_remote, ("s3", "owner/name", "/s3://x", "http://x")))
