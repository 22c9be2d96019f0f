"""Images kept in memory by 2 processes x 2 loader workers: one memory, every image decoded once, the same batches."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ImageSet, Sizes
from ssl_vit.data.loading import cache
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.loading.cache import Cache
from ssl_vit.data.loading.loader import Loader

N, BROKEN, MICRO, STEPS = 210, 104, 10, 11


@dataclass(frozen=True)
class Logged:
    """Noise of 16 bits; the last image of the first process's share is broken; every reading is written down."""

    log: Path

    def __len__(self) -> int:
        return N

    def raw(self, row: int) -> np.ndarray:
        with self.log.open("a") as file:
            file.write(f"{row}\n")
        if row == BROKEN:
            raise OSError(5, "broken")
        return np.random.default_rng(row).integers(0, 2**16, (2, 3, 3)).astype(np.uint16)

    def where(self, row: int) -> str:
        return f"row {row}"


def loaded(log: Path, kept: Cache, workers: int) -> Loader:
    sizes, labels = Sizes((3, 3), 3), np.arange(N) % 7
    images = ImageSet("logged", Logged(log), np.arange(N), Format(2, 16), sizes, "", labels=labels)
    device = torch.device("cpu")
    return Loader(images, batch_size=40, micro_batch=MICRO, seed=3, device=device, cache=kept, workers=workers)


def rows(batches: list[Batch]) -> list[list[int]]:
    """Everything that is known of every image, in order."""
    found = []
    for b in batches:
        assert b.labels is not None
        pixels = b.images.flatten(1)
        parts = (b.index[:, None], b.epoch[:, None], b.labels[:, None], b.sizes.to(torch.int64), pixels)
        found += torch.cat(parts, 1).tolist()
    return found


def maps() -> list[str]:
    """Device and inode of all memory that is shared."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({" ".join(line.split()[3:5]) for line in lines if "memfd:ssl_vit" in line})


def main(root: Path) -> None:
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    held = loaded(root / "kept", "ram", 2)
    found: dict[str, object] = {"maps": maps() if sys.platform == "linux" else [], "kept": held.kept}
    found |= {"kept rows": rows(list(held.batches(0, STEPS))), "unreadable": held.unreadable.listing()}
    del held
    found["maps afterwards"] = maps() if sys.platform == "linux" else []
    found["read rows"] = rows(list(loaded(root / "read", "none", 0).batches(0, STEPS)))
    cache.free_memory = lambda: 10**9 if rank == 0 else 4000
    found["too little"] = loaded(root / "little", "auto", 0).kept
    (root / f"rank{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, launch) -> Path:
    root = tmp_path_factory.mktemp("kept")
    done = launch(2, __file__, str(root), cwd=root)
    assert done.returncode == 0, done.stderr
    (root / "err").write_text(done.stderr)
    return root


@pytest.fixture(scope="module")
def ranks(root: Path) -> list[dict[str, list]]:
    return [json.loads((root / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.skipif(sys.platform != "linux", reason="lists maps where Linux shows them")
def test_both_processes_see_one_memory_and_leave_it(ranks: list[dict[str, list]]) -> None:
    assert len(ranks[0]["maps"]) == 2  # pixels and sizes
    assert ranks[0]["maps"] == ranks[1]["maps"]
    assert ranks[0]["maps afterwards"] == ranks[1]["maps afterwards"] == []


def test_every_image_is_decoded_once(root: Path) -> None:
    assert sorted(map(int, (root / "kept").read_text().split())) == list(range(N))


def test_batches_are_those_of_one_process_that_keeps_nothing(
    ranks: list[dict[str, list]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for found in ranks:
        assert found["kept rows"] == found["read rows"]
        assert len(found["kept rows"]) == STEPS * 20
    alone = rows(list(loaded(tmp_path / "log", "none", 0).batches(0, STEPS)))
    parts = [[found["kept rows"][i : i + MICRO] for i in range(0, STEPS * 20, MICRO)] for found in ranks]
    assert [row for turn in zip(*parts, strict=True) for part in turn for row in part] == alone
    assert {row[0] for row in alone} == set(range(N)) - {BROKEN}


def test_an_unreadable_image_is_named_once_and_known_to_all(root: Path, ranks: list[dict[str, list]]) -> None:
    line = f"row {BROKEN} cannot be read (cannot be opened (broken))"
    assert ranks[0]["unreadable"] == ranks[1]["unreadable"] == [line]
    # Once while all is decoded for both; then by each process that meets it, since nothing is kept.
    assert (root / "err").read_text().count(f"warning: {line}; another image takes its place") == 3


def test_all_processes_decide_alike(ranks: list[dict[str, list]]) -> None:
    assert ranks[0]["kept"] == ranks[1]["kept"]
    assert ranks[0]["too little"] == ranks[1]["too little"] == (
        "decoded as needed: 7.6 kB do not fit in half of 4.0 kB free"
    )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
