"""Batch normalisation over two gloo processes is that of one process on the whole batch, gradients included."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import timm
import torch
from ssl_vit.models.batchnorm import SynchronisedBatchNorm, running_statistics, synchronise_batch_norm
from torch import Tensor, nn

HALF = 3


class Net(nn.Module):
    """Two- and one-dimensional statistics, timm's fused activation, and a layer without scale and shift."""

    def __init__(self) -> None:
        super().__init__()
        self.body = timm.create_model("test_efficientnet", num_classes=0)
        self.head = nn.Sequential(nn.Linear(256, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.BatchNorm1d(4, affine=False))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))


def trained(rank: int = 0, world: int = 1, synchronised: bool = True) -> dict[str, Tensor]:
    """Outputs, running statistics and gradients of a share of the same eager batch."""
    torch.manual_seed(0)
    net = Net().double()
    if synchronised:
        synchronise_batch_norm(net)
    images, weight = torch.randn(2 * HALF, 3, 32, 32).double(), torch.randn(2 * HALF, 4).double()
    each = 2 * HALF // world
    mine = slice(rank * each, rank * each + each)
    given = images[mine].requires_grad_()
    for _ in range(2):
        outputs = net(given)
        (outputs * weight[mine]).sum().backward()
    assert given.grad is not None
    found = {"outputs": outputs.detach(), "images": given.grad}
    found |= {f"grad {k}": p.grad for k, p in net.named_parameters() if p.grad is not None}
    return found | dict(net.named_buffers()) | {f"running {i}": s for i, s in enumerate(running_statistics(net))}


def main(root: Path) -> None:
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.save(trained(rank, 2), root / f"{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory, launch) -> list[dict[str, Tensor]]:
    root = tmp_path_factory.mktemp("batch_norm")
    done = launch(2, __file__, str(root), cwd=root)
    assert done.returncode == 0, done.stderr
    return [torch.load(root / f"{rank}.pt") for rank in range(2)]


def test_two_processes_equal_one(halves: list[dict[str, Tensor]]) -> None:
    whole = trained()
    for name, value in whole.items():
        a, b = (half[name] for half in halves)
        if name in ("outputs", "images"):  # of every image
            both = torch.cat([a, b])
        elif name.startswith("grad "):  # DDP's sum
            both = a + b
        else:
            assert torch.equal(a, b), name
            both = a
        assert (both - value).abs().max() <= 1e-10 * max(1.0, float(value.abs().max())), name
    assert any("running_var" in name for name in whole)


@pytest.mark.quick
def test_one_process_is_torchs_own() -> None:
    ours, theirs = trained(), trained(synchronised=False)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert (ours[name] - value).abs().max() <= 1e-12 * max(1.0, float(value.abs().max())), name


@pytest.mark.quick
def test_names_values_and_activations_stay() -> None:
    net = Net()
    before, state = [type(part) for part in net.modules()], {k: v.clone() for k, v in net.state_dict().items()}
    synchronise_batch_norm(net)
    after = net.state_dict()
    assert list(state) == list(after)
    assert all(torch.equal(state[k], after[k]) for k in state)
    replaced = [part for part in net.modules() if isinstance(part, SynchronisedBatchNorm)]
    assert len(replaced) == sum(issubclass(kind, nn.modules.batchnorm._BatchNorm) for kind in before)
    assert not any(type(part) in (nn.BatchNorm1d, nn.BatchNorm2d) for part in net.modules())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
