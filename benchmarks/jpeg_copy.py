"""What a copy of CIFAR-10 in JPEG costs: ResNets of known accuracy on the lossless images, judged on the copy.

    python benchmarks/jpeg_copy.py --data FOLDER --networks CHECKOUT
    python benchmarks/jpeg_copy.py --data FOLDER --networks CHECKOUT --further resnet20 --epochs 10

FOLDER holds train.parquet and test.parquet, CHECKOUT is akamaster/pytorch_resnet_cifar10 with its trained networks;
each file names the accuracy that it has on the lossless test images. A network is judged twice on the copy's test
images: as it is, when it has never seen what JPEG leaves; and, if asked, after further training on the copy's training
images: by SGD from a rate of 0.01 by a cosine to 0, batches of 128, weight decay 1e-4, padded crops and mirror
images, last epoch. All training images are used; one seed. What the further training would do on lossless images cannot
be told without them.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from reports import RESULTS, about, made_by, paragraph, same_command, write

ROOT = Path(__file__).resolve().parent.parent
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the channels, as those networks have them."""
RATE, BATCH, DECAY, BORDER = 0.01, 128, 1e-4, 4


def images(path: Path) -> tuple[Tensor, Tensor]:
    """Pixels [B, C, H, W], normalised as those networks expect them, and classes [B] of a table."""
    table = pq.read_table(path)
    files = [np.asarray(Image.open(io.BytesIO(row["bytes"])).convert("RGB")) for row in table["image"].to_pylist()]
    pixels = torch.from_numpy(np.stack(files)).permute(0, 3, 1, 2).float() / 255
    mean, deviation = (torch.tensor(each)[:, None, None] for each in (MEAN, DEVIATION))
    return (pixels - mean) / deviation, torch.tensor(table["label"].to_pylist())


def networks(checkout: Path, only: list[str]) -> dict[str, tuple[nn.Module, float]]:
    """Trained networks of the checkout and the percent right that each has on the lossless test images."""
    spec = importlib.util.spec_from_file_location("their_resnet", checkout / "resnet.py")
    if spec is None or spec.loader is None or not (checkout / "resnet.py").is_file():
        raise SystemExit(f"{checkout} is no checkout of akamaster/pytorch_resnet_cifar10: resnet.py is not there")
    theirs: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    found = {}
    for path in sorted((checkout / "pretrained_models").glob("*.th")):
        name = path.name.partition("-")[0]
        if only and name not in only:
            continue
        saved = torch.load(path, map_location="cpu", weights_only=True)
        network = getattr(theirs, name)()
        network.load_state_dict({key.removeprefix("module."): value for key, value in saved["state_dict"].items()})
        found[name] = (network.to(memory_format=torch.channels_last), float(saved["best_prec1"]))
    if not found:
        raise SystemExit(f"no trained network in {checkout / 'pretrained_models'}")
    return found


def right(network: nn.Module, pixels: Tensor, classes: Tensor) -> float:
    """Percent of images whose class the network names."""
    network.eval()
    with torch.inference_mode():
        named = torch.cat([network(part).argmax(1) for part in pixels.split(500)])
    return 100 * (named == classes).double().mean().item()


def varied(pixels: Tensor, draw: torch.Generator) -> Tensor:
    """Every image shifted by up to four pixels, each way, and mirrored in half of the cases."""
    count, _, height, width = pixels.shape
    wide = pad(pixels, [BORDER] * 4)
    down, right = torch.randint(0, 2 * BORDER + 1, (2, count, 1), generator=draw)
    rows, columns = down + torch.arange(height), right + torch.arange(width)
    mirrored = torch.rand(count, 1, generator=draw) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    each = torch.arange(count)[:, None, None]
    return wide.permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


def trained(network: nn.Module, pixels: Tensor, classes: Tensor, epochs: int) -> None:
    """Trains it further on the copy."""
    draw = torch.Generator().manual_seed(0)
    steps = epochs * (len(pixels) // BATCH)
    optimiser = torch.optim.SGD(network.parameters(), RATE, momentum=0.9, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    network.train()
    for epoch in range(epochs):
        order, losses = torch.randperm(len(pixels), generator=draw), []
        for rows in order[: len(order) // BATCH * BATCH].split(BATCH):
            loss = cross_entropy(network(varied(pixels[rows], draw)), classes[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1} of {epochs}: loss {sum(losses) / len(losses):.4f}", flush=True)


def main() -> None:
    """Judges the networks, and writes OUT/jpeg_copy.json and OUT/jpeg_copy.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of train.parquet and test.parquet")
    parser.add_argument("--networks", type=Path, required=True, help="checkout of akamaster/pytorch_resnet_cifar10")
    parser.add_argument("--only", nargs="*", default=[], help="names of networks; all of them, if left out")
    parser.add_argument("--further", nargs="*", default=[], help="names of those that are trained further on the copy")
    parser.add_argument("--epochs", type=int, default=10, help="of further training")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    torch.manual_seed(0)
    seen, judged = (images(options.data / f"{name}.parquet") for name in ("train", "test"))
    rows = []
    for name, (network, lossless) in networks(options.networks, options.only).items():
        row = {"network": name, "lossless": lossless, "as it is": right(network, *judged)}
        if name in options.further:
            trained(network, *seen, options.epochs)
            row |= {"epochs": options.epochs, "trained further": right(network, *judged)}
        print(row, flush=True)
        rows.append(row)
    command = same_command("jpeg_copy.py", sys.argv[1:])
    result = {"rows": rows, "about": about(command, "CPU, one thread")}
    write(options.out, "jpeg_copy", result, lines(result))


def lines(result: dict[str, Any]) -> list[str]:
    """The result as text."""
    table = [
        f"| {row['network']} | {row['lossless']:.2f} | {row['as it is']:.2f} | "
        + (f"{row['trained further']:.2f} | {row['epochs']} |" if "epochs" in row else "- | - |")
        for row in result["rows"]
    ]
    return [
        f"# What the JPEG copy of CIFAR-10 costs\n\n{paragraph(__doc__, 2)}\n",
        "| network | percent right, lossless images | the copy, as it is | the copy, trained further | epochs |",
        "| --- | ---: | ---: | ---: | ---: |",
        *table,
        f"\n{made_by(result['about'], ('torch',))}",
    ]


if __name__ == "__main__":
    main()
