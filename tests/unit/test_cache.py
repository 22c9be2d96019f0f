"""Where decoded images are kept: the same batches from everywhere, decoded once, nothing left behind."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from ssl_vit.configs import DataConfig, LabelledDataConfig
from ssl_vit.core import machine
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.loading import cache, loader, shared, workers
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.loading.cache import Cache, Place, choose
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.loading.shared import SharedArray, free_memory
from ssl_vit.data.loading.workers import UnreadableLog
from ssl_vit.data.sources.opening import open_pool
from torch.utils._pytree import tree_map

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
N, BROKEN = 150, 149


@dataclass(frozen=True)
class Logged:
    """Two channels of 16 bits, of many sizes, the last one broken; every reading is written down."""

    log: Path

    def __len__(self) -> int:
        return N

    def raw(self, row: int) -> np.ndarray:
        with self.log.open("a") as file:
            file.write(f"{row}\n")
        if row == BROKEN:
            raise OSError(5, "broken")
        return np.random.default_rng(row).integers(0, 2**16, (2, 4 + row % 2, 5)).astype(np.uint16)

    def where(self, row: int) -> str:
        return f"row {row}"


def deep_set(root: Path) -> ImageSet:
    labels = np.arange(N, dtype=np.float64)[:, None]
    images = ImageSet(
        "deep", Logged(root / "log"), np.arange(N), Format(2, 16), Sizes(None, 4), "",
        labels=labels, kind="regression",
    )  # fmt: skip
    return images.on_canvas(4, 4)


def array_set(n: int = 6) -> ImageSet:
    pixels = np.arange(n * 4, dtype=np.uint8).reshape(n, 1, 2, 2)
    return ImageSet("arrays", ArrayRows(pixels, "arrays"), np.arange(n), Format(1, 8), Sizes((2, 2), 2), "")


def load(images: ImageSet, kept: Cache, count: int = 0) -> Loader:
    return Loader(images, batch_size=40, micro_batch=20, seed=3, device=CPU, cache=kept, workers=count)


def content(batches: list[Batch]) -> list[dict[str, object]]:
    return [tree_map(lambda v: v.tolist() if isinstance(v, torch.Tensor) else v, vars(batch)) for batch in batches]


# The same batches


@pytest.mark.parametrize("count", [0, 2])
def test_batches_are_the_same_wherever_images_are_kept(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images = deep_set(tmp_path)
    first = list(load(images, "none").batches(0, 8))
    assert all(b.images.dtype == torch.int32 and b.images.shape == (20, 2, 4, 4) for b in first)
    assert {int(b.images.max()) > 2**15 for b in first} == {True}
    modes: tuple[Cache, ...] = ("none", "auto", "ram", "device")
    for kept in modes:
        assert content(list(load(images, kept, count).batches(0, 8))) == content(first), kept
    monkeypatch.setattr(loader, "choose", lambda *_: Place("device", "as on a GPU"))
    on_device = load(images, "device", count)
    assert on_device._store is not None
    assert on_device._store.on_device
    assert content(list(on_device.batches(0, 8))) == content(first)
    assert content(list(on_device.batches(5, 8))) == content(first[10:])
    assert capsys.readouterr().err.count("row 149 cannot be read (cannot be opened (broken)); another") == 6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_batches_on_a_gpu_are_the_same_and_come_without_waiting_for_it(tmp_path: Path) -> None:
    images = deep_set(tmp_path)
    first = content(list(load(images, "none").batches(0, 8)))
    modes: tuple[tuple[Cache, int], ...] = (("none", 0), ("none", 2), ("ram", 0), ("device", 0))
    for kept, count in modes:
        on_gpu = Loader(images, batch_size=40, micro_batch=20, seed=3, device=GPU, cache=kept, workers=count)
        assert ("on the GPU" in on_gpu.kept) == (kept == "device")
        torch.cuda.set_sync_debug_mode("error")
        try:
            batches = list(on_gpu.batches(0, 8))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert {v.device.type for b in batches for v in vars(b).values() if isinstance(v, torch.Tensor)} == {"cuda"}
        assert content(batches) == first, kept


def test_weights_made_afterwards_do_not_depend_on_how_images_are_loaded(tmp_path: Path) -> None:
    drawn = []
    modes: tuple[tuple[Cache, int], ...] = (("none", 0), ("ram", 0), ("ram", 1), ("device", 0))
    for kept, count in modes:
        torch.manual_seed(5)
        images = array_set() if kept == "device" else deep_set(tmp_path)
        list(load(images, kept, count).batches(0, 1))
        drawn.append(torch.rand(1).item())
    torch.manual_seed(5)
    assert drawn == [torch.rand(1).item()] * 4


@pytest.mark.parametrize("count", [0, 2])
def test_every_image_is_decoded_once(count: int, tmp_path: Path) -> None:
    held = load(deep_set(tmp_path), "ram", count)
    list(held.batches(0, 12))
    assert sorted(map(int, (tmp_path / "log").read_text().split())) == list(range(N))
    assert list(held.unreadable.reasons) == [BROKEN]


def test_an_array_is_used_as_it_is() -> None:
    images = array_set().subset(np.array([4, 1, 3]))
    assert isinstance(images.rows, ArrayRows)
    for kept in ("auto", "ram"):
        held = Loader(images, batch_size=3, micro_batch=3, seed=0, device=CPU, cache=kept)
        assert held.kept == "in memory"
        assert held._store is not None
        assert held._store.pixels.data_ptr() == images.rows.pixels.ctypes.data
        (batch,) = held.batches(0, 1)
        assert batch.images[:, 0, 0, 0].tolist() == [4 * (4, 1, 3)[i] for i in batch.index.tolist()]
    resized = replace(images, canvas=(3, 3))
    (batch,) = Loader(resized, batch_size=3, micro_batch=3, seed=0, device=CPU, cache="ram").batches(0, 1)
    assert batch.images.shape == (3, 1, 3, 3)


def test_an_array_that_must_not_be_written_into() -> None:
    images = array_set()
    assert isinstance(images.rows, ArrayRows)
    images.rows.pixels.setflags(write=False)
    (batch,) = Loader(images, batch_size=6, micro_batch=6, seed=0, device=CPU, cache="ram").batches(0, 1)
    assert batch.images[:, 0, 0, 0].tolist() == [4 * i for i in batch.index.tolist()]


def test_a_lone_image_that_cannot_be_read_stops_the_run(tmp_path: Path) -> None:
    for kept in ("ram", "none"):
        with pytest.raises(UserError, match="1 of 1 images cannot be read"):
            list(load(deep_set(tmp_path).subset(np.array([BROKEN])), kept).batches(0, 1))


# Where to


GB = 10**9


@pytest.mark.parametrize(
    ("asked", "device", "ram", "own", "expected"),
    [
        ("auto", CPU, 24 * GB, 0, ("ram", "kept in shared memory: 6.0 GB of 24.0 GB free")),
        ("auto", CPU, 12 * GB, 0, ("ram", "kept in shared memory: 6.0 GB of 12.0 GB free")),
        ("auto", CPU, 11 * GB, 0, ("none", "decoded as needed: 6.0 GB do not fit in half of 11.0 GB free")),
        ("auto", GPU, 24 * GB, 24 * GB, ("device", "kept on the GPU: 6.0 GB of 24.0 GB free")),
        ("auto", GPU, 24 * GB, 23 * GB, ("ram", "kept in shared memory: 6.0 GB of 24.0 GB free")),
        ("auto", GPU, 11 * GB, 80 * GB, ("none", "decoded as needed: 6.0 GB do not fit in half of 11.0 GB free")),
        ("ram", GPU, 7 * GB, 80 * GB, ("ram", "kept in shared memory: 6.0 GB of 7.0 GB free")),
        ("device", GPU, 7 * GB, 7 * GB, ("device", "kept on the GPU: 6.0 GB of 7.0 GB free")),
        ("device", CPU, 7 * GB, 0, ("ram", "kept in shared memory: 6.0 GB of 7.0 GB free")),
        ("none", GPU, 24 * GB, 24 * GB, ("none", "decoded as needed")),
    ],
)
def test_the_place_follows_from_what_is_free(
    asked: Cache, device: torch.device, ram: int, own: int, expected: tuple[str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(cache, "_free", lambda _: (ram, own))
    images = replace(deep_set(tmp_path), canvas=(1000, 10_000))  # 150 x 2 channels x 16 bits
    assert choose(images, asked, device) == expected


@pytest.mark.parametrize(
    ("asked", "ram", "own", "said"),
    [
        ("ram", 5 * GB, 80 * GB, "--data.cache ram: 6.0 GB of decoded images do not fit in 5.0 GB of free memory; use"),
        ("device", 5 * GB, 80 * GB, "--data.cache device: 6.0 GB of decoded images do not fit in 5.0 GB of free mem"),
        ("device", 80 * GB, 123_456_789, "images do not fit in 123 MB of free memory on the GPU; use --data.cache aut"),
    ],
)
def test_what_is_asked_for_and_does_not_fit_is_refused(
    asked: Cache, ram: int, own: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_free", lambda _: (ram, own))
    with pytest.raises(UserError) as raised:
        choose(replace(deep_set(tmp_path), canvas=(1000, 10_000)), asked, GPU)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_windows_are_never_kept_and_streamed_images_only_when_asked_for(tmp_path: Path) -> None:
    images = deep_set(tmp_path)
    for asked in ("auto", "ram", "device"):
        assert choose(replace(images, window=4, canvas=None), asked, CPU).kind == "none"
    streamed = replace(images, blocks=np.arange(N) // 10)
    assert choose(streamed, "auto", CPU) == ("none", "decoded as needed: they are streamed")
    assert choose(streamed, "ram", CPU).kind == "ram"


def test_an_array_needs_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_free", lambda _: (0, 4 * 24))
    assert choose(array_set(), "auto", CPU) == ("ram", "in memory")
    assert choose(array_set(), "ram", GPU) == ("ram", "in memory")
    assert choose(array_set(), "auto", GPU) == ("device", "kept on the GPU: 24 bytes of 96 bytes free")
    assert choose(array_set(7), "auto", GPU) == ("ram", "in memory")


def test_free_memory_is_that_of_the_narrowest_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    monkeypatch.setattr(machine, "_GROUPS", tmp_path)
    monkeypatch.setattr(machine, "_OWN_GROUP", tmp_path / "own")
    assert free_memory() == 1000
    (tmp_path / "own").write_text("9:name=systemd:/x\n0::/job/step\n")
    assert free_memory() == 1000

    def confine(group: str, limit: str, used: int, old: int) -> None:
        folder = tmp_path / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(limit + "\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {old}\n")

    confine("job/step", "max", 700, 0)
    assert free_memory() == 1000
    confine("job", "800", 600, 50)
    assert free_memory() == 250
    confine("job/step", "900", 800, 10)
    assert free_memory() == 110
    confine("job/step", "100", 800, 10)
    assert free_memory() == 0


# Shared arrays


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_shared_array_is_one_memory(platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if platform == "linux" and sys.platform != "linux":
        pytest.skip("files without a name are Linux's")
    monkeypatch.setattr(shared, "sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr(shared.tempfile, "tempdir", str(tmp_path))
    made = SharedArray((3, 2), "uint16")
    assert made.array.tolist() == [[0, 0]] * 3
    assert len(list(tmp_path.iterdir())) == (platform == "darwin")
    others = (SharedArray((3, 2), "uint16", made.path), pickle.loads(pickle.dumps(made)))
    for value, one in enumerate((made, *others), 1):
        one.array[1] = 65535 - value
        assert all(other.array[1].tolist() == [65535 - value] * 2 for other in (made, *others))
    for one in (made, *others):
        one.close()
    assert not list(tmp_path.iterdir())
    assert not Path(made.path).exists()
    made.array[2, 0] = 7
    assert others[1].array[2, 0] == 7


KILLED = """
import os, signal, sys
import numpy as np, torch
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ImageSet, Sizes
from ssl_vit.data.loading.loader import Loader

class Rows:
    def __len__(self): return 50
    def where(self, row): return str(row)
    def raw(self, row):
        if row == 30:
            print("killed", open("/proc/self/maps").read().count("memfd:ssl_vit"), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return np.ones((1, 4, 4), np.uint8)

images = ImageSet("x", Rows(), np.arange(50), Format(1, 8), Sizes((4, 4), 4), "")
Loader(images, batch_size=4, micro_batch=4, seed=0, device=torch.device("cpu"), cache="ram", workers=0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="files without a name are Linux's")
@pytest.mark.processes
def test_a_process_killed_while_it_decodes_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, cwd=tmp_path, timeout=120,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout == "killed 2\n"  # pixels and sizes were there
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert not [name for name in left if not name.startswith("_remote_module")]  # torch 2.7 writes code of its own
    assert not list(Path("/dev/shm").glob("*ssl_vit*"))


# From loader processes


def one_batch(images: ImageSet) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.arange(20), np.zeros(20, dtype=np.int64))]


def test_pixels_come_through_shared_memory_where_it_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = deep_set(tmp_path)
    (through,) = workers.decoded(images, one_batch(images), 1)
    assert isinstance(through.pixels, torch.Tensor)
    assert through.pixels.is_shared()
    # 3 batches of 20 images of 2 x 16 x 16 bits may take half of what is free.
    monkeypatch.setattr(workers, "_SHARED", tmp_path)
    for free, fits in ((3 * 20 * 64 * 2, False), (3 * 20 * 64 * 2 + 2, True)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        (found,) = workers.decoded(images, one_batch(images), 1)
        assert isinstance(found.pixels, torch.Tensor if fits else np.ndarray)
        assert torch.equal(torch.as_tensor(found.pixels), through.pixels)


def test_processes_follow_from_the_cores_that_may_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = deep_set(tmp_path)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    for cores, expected in ((64, (16, 16)), (9, (3, 4)), (2, (1, 1))):
        monkeypatch.setattr(workers, "threads", lambda cores=cores: cores)
        assert tuple(workers.loader_processes(images, None, busy=busy) for busy in (True, False)) == expected
    assert workers.loader_processes(images, 0) == 0
    assert workers.loader_processes(images, 5) == 5
    assert workers.loader_processes(array_set(), 5) == 0


def test_nothing_wanted_starts_no_process(tmp_path: Path) -> None:
    assert list(workers.decoded(deep_set(tmp_path), [], 2)) == []


def test_what_processes_found_is_known_to_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    images = deep_set(tmp_path)
    log = UnreadableLog(images)
    log.add([(7, "too dark: black")], "")
    monkeypatch.setattr("ssl_vit.data.loading.workers.gather_lists", lambda own: own)
    log.gather()
    assert log.reasons == {7: "too dark: black"}
    monkeypatch.setattr("ssl_vit.data.loading.workers.gather_lists", lambda own: [*own, "9 too bright"])
    with pytest.raises(UserError, match=r"2 of 150[\s\S]*row 7 .*too dark: black[\s\S]*row 9 .*too bright"):
        log.gather()


def test_a_cpu_keeps_the_channels_of_larger_images_together(tmp_path: Path) -> None:
    for i in range(6):
        pixels = np.random.default_rng(i).integers(0, 256, (48, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    pool, _ = open_pool(DataConfig(path=str(tmp_path)), LabelledDataConfig())
    decoded, kept = (list(load(pool, mode).batches(0, 2)) for mode in ("none", "ram"))
    assert content(kept) == content(decoded)
    assert kept[0].images.is_contiguous(memory_format=torch.channels_last)
