"""How many threads compute beside a GPU."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator
from ssl_vit.training import launch


@pytest.mark.parametrize(("chosen", "then"), [(None, 1), ("3", 3)])
def test_a_lone_thread_draws_beside_a_gpu(monkeypatch: pytest.MonkeyPatch, chosen: str | None, then: int) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    accelerator = Accelerator(cpu=True)
    monkeypatch.setattr(Accelerator, "device", torch.device("meta"))
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        launch.use_cores(accelerator, 224)
        assert torch.get_num_threads() == then
    finally:
        torch.set_num_threads(before)
