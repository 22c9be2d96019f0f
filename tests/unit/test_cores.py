"""How many threads compute where operations are small: beside a GPU, and on images of a few pixels."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator
from ssl_vit.training import launch


@pytest.mark.parametrize(("chosen", "then"), [(None, 1), ("3", 3)])
@pytest.mark.parametrize(("device", "size"), [("meta", 224), ("cpu", 8)])
def test_a_lone_thread_does_small_operations(
    monkeypatch: pytest.MonkeyPatch, device: str, size: int, chosen: str | None, then: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    accelerator = Accelerator(cpu=True)
    monkeypatch.setattr(Accelerator, "device", torch.device(device))
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        launch.use_cores(accelerator, size)
        assert torch.get_num_threads() == then
    finally:
        torch.set_num_threads(before)
