"""--fit.micro_batch auto: as many images per forward pass as fit into memory, without changing any result."""

from __future__ import annotations

from collections.abc import Callable

import torch
from accelerate import Accelerator

from ssl_vit.configs import ResolvedFit
from ssl_vit.core.dist import local_processes, max_over_ranks
from ssl_vit.core.errors import UserError
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.loading.shared import free_memory
from ssl_vit.objectives.base import Objective
from ssl_vit.training.metering import Pass, out_of_memory, try_pass
from ssl_vit.views.training import View

_SHARE = 0.7
"""Of the free memory: what is neither weights nor kept for the backward pass takes some, and so do other programs."""
_TRIED = 2
"""Images of the first pass; one would be too few for batch normalisation."""


def settle_micro_batch(
    objective: Objective, loader: Loader, view: View, *, fit: ResolvedFit, accelerator: Accelerator, seed: int
) -> None:
    """Splits the loader's batches so that a forward and a backward pass fit into memory; prints how.

    The effective batch, and with it learning rate, schedules and moving averages, stays: the rest is accumulated.
    UserError where the batch must not be split, or not even the smallest part fits.
    """
    whole = loader.micro_batch
    batch = next(loader.batches(0, 1))

    def run(images: int) -> Pass:
        return try_pass(objective, view(batch.part(slice(images)), seed), accelerator.autocast())

    few = min(_TRIED, whole)
    each = run(few).kept / few
    # Gradients and two moments of AdamW are still to come; weights are already there.
    state = 3 * sum(p.numel() * p.element_size() for p in objective.parameters() if p.requires_grad)
    free = _free_memory(accelerator.device)
    sizes = [n for n in range(whole, 0, -1) if whole % n == 0 and (n % 2 == 0 or whole % 2)]  # mixing needs pairs
    fitting = [n for n in sizes if n * each + state <= _SHARE * free]
    wanted = torch.tensor([sizes.index(fitting[0]) if fitting else len(sizes)], device=accelerator.device)
    position = int(max_over_ranks(wanted))
    while position < len(sizes) and accelerator.device.type != "cpu" and not _runs(run, sizes[position], accelerator):
        position += 1
    gigabytes = f"{each / 2**30:.2g} GB an image, {state / 2**30:.2g} GB of gradients and optimiser, "
    gigabytes += f"{free / 2**30:.2g} GB free"
    if position == len(sizes):
        cures = "a smaller network or input" if fit.recompute else "--fit.recompute true, a smaller network or input"
        raise UserError(
            f"--fit.micro_batch auto: not even {sizes[-1]} image(s) per forward pass fit ({gigabytes}); try {cures}"
        )
    if position and fit.statistics_batch is not None:
        raise UserError(
            f"--fit.micro_batch auto: {whole} images per forward pass do not fit ({gigabytes}), and statistics are "
            "taken over a forward pass, so that fewer give another result; if that is wanted, --fit.micro_batch "
            f"{sizes[position]}"
        )
    loader.split(sizes[position])
    if accelerator.is_main_process:
        split = f"{loader.micro_batch} per device x {loader.accumulation} accumulation"
        print(f"micro-batch     {split} ({gigabytes})", flush=True)


def _free_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return free_memory() / local_processes()


def _runs(run: Callable[[int], Pass], images: int, accelerator: Accelerator) -> bool:
    """Whether such a pass goes through, on every process."""
    failed = torch.zeros(1, device=accelerator.device)
    try:
        run(images)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        failed += 1
    return not bool(max_over_ranks(failed))
