"""Kept features on two processes: those of one process, written once, and used by all processes or by none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.loading.loader import Batch
from ssl_vit.evaluation.store import kept_features
from torch import Tensor

PIXELS = np.random.default_rng(0).integers(0, 256, (41, 1, 4, 4)).astype(np.uint8)


def ask(folder: Path, writes: bool) -> tuple[list[list[float]], int]:
    """The vectors, and how many of them this process has computed."""
    ids, seen = np.arange(41), 0

    def extract(batch: Batch) -> Tensor:
        nonlocal seen
        seen += len(batch.images)
        return batch.images.flatten(1).float()

    images = ImageSet("a", ArrayRows(PIXELS, "a"), ids, Format(1, 8), Sizes((4, 4), 4), "s", labels=ids % 2)
    cpu = torch.device("cpu")
    found = kept_features(folder, extract, {"network": "a"}, images, writes=writes, batch_size=8, device=cpu)
    return found.x.tolist(), seen


def main(root: Path) -> None:
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    answers = [ask(root / "kept", rank == 0)]
    torch.distributed.barrier()
    answers += [ask(root / "kept", rank == 0), ask(root / "kept" if rank == 0 else root / "elsewhere", rank == 0)]
    (root / f"rank{rank}.json").write_text(json.dumps(answers))
    torch.distributed.destroy_process_group()


def test_all_processes_go_the_same_way(tmp_path: Path, launch) -> None:
    done = launch(2, __file__, str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    for answers in zip(*ranks, strict=True):
        for vectors, _ in answers:
            assert vectors == PIXELS.reshape(41, 16).tolist()
    # Computed in shares; then a sample by each; then again in shares, because one process finds nothing.
    assert [[seen for _, seen in answers] for answers in ranks] == [[20, 16, 16 + 20], [21, 16, 21]]
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert not (tmp_path / "elsewhere").exists()
    vectors, seen = ask(tmp_path / "kept", True)  # what two processes kept serves one
    assert (vectors, seen) == (PIXELS.reshape(41, 16).tolist(), 16)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
