"""Few numbers on a device, sent there once: a copy from the host makes the host wait for all that was asked before."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=256)
def constant(values: tuple[int | float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A vector of these numbers; not to be changed in place."""
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device)


def sent(host: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device, without waiting for it to get there."""
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)
