"""How many images a second does the multi-crop view make on one CPU core, against DINO's transform on PIL images?

    python benchmarks/bench_multicrop.py                  # some minutes; nothing else should run on the machine
    python benchmarks/bench_multicrop.py --rounds 3 --dry # a quick look that writes nothing

Both get decoded images and make the same crops with the same chances: two of 32 and six of 16 px from images of 32 px,
two of 224 and eight of 96 px from images of 256 px. The transform is put together from torchvision as the paper's
released code does (bicubic crops, colour jitter, grey, Pillow's blur and solarise, normalise), one image after the
other. One thread, process CPU time. Every round times both, in alternating order, and gives one ratio; the table shows
the median of the ratios with the least and the largest.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from reports import RESULTS, about, made_by, paragraph, same_command, verdict, write

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GLOBAL, LOCAL = (0.4, 1.0), (0.05, 0.4)


class Case(NamedTuple):
    """Sides in pixels, local crops, images per batch of the view and that a round gives the transform, and a bar."""

    source: int
    size: int
    local_size: int
    local_crops: int
    batch: int
    pictures: int
    bar: float | None = None


CASES = [Case(32, 32, 16, 6, batch, 64, 9.5) for batch in (64, 128, 256)]
CASES += [Case(256, 224, 96, 8, batch, 8) for batch in (16, 64)]


def pictures(case: Case) -> Any:
    """Smooth coloured noise, Integer[B 3 H W] of 8 bits."""
    import torch
    import torch.nn.functional as F

    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand((case.batch, 3, 8, 8), generator=generator)
    smooth = F.interpolate(coarse, size=(case.source,) * 2, mode="bicubic").clamp(0, 1)
    return (smooth * 255).round().to(torch.uint8)


def view_of(case: Case, images: Any) -> Callable[[int], Any]:
    """One batch through this project's view; the number is a seed."""
    import torch
    from ssl_vit.configs import ResolvedCrops
    from ssl_vit.data.loading.loader import Batch
    from ssl_vit.data.scale import PixelScale
    from ssl_vit.views.multicrop import multicrop_view

    cfg = ResolvedCrops(
        GLOBAL, LOCAL, case.local_crops, case.local_size, flip=True, jitter=1.0, blur=(1.0, 0.1, 0.5),
        blur_sigma=(0.1, 2.0), solarise=0.2,
    )  # fmt: skip
    view = multicrop_view(PixelScale(MEAN, STD, 8), cfg, size=case.size, drop_rates=None, dtype=torch.float32)
    words, sides = torch.arange(case.batch), torch.full((case.batch, 2), float(case.source))
    batch = Batch(images, words, torch.zeros_like(words), sides, True, None)
    return lambda seed: view(batch, seed)


def transforms_of(size: int, local_size: int, local_crops: int) -> list[Any]:
    """One transform of PIL images for every view, put together from torchvision as the released code does."""
    from PIL import ImageFilter, ImageOps
    from torchvision import transforms as tv

    def sometimes(chance: float, change: Callable[[Any], Any]) -> Any:
        return tv.RandomApply([tv.Lambda(change)], chance)

    def blur(chance: float) -> Any:
        return sometimes(chance, lambda x: x.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0))))

    def crop(size: int, area: tuple[float, float]) -> Any:
        return tv.RandomResizedCrop(size, area, interpolation=tv.InterpolationMode.BICUBIC)

    colours = [
        tv.RandomHorizontalFlip(), tv.RandomApply([tv.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8), tv.RandomGrayscale(0.2),
    ]  # fmt: skip
    last = [tv.ToTensor(), tv.Normalize(MEAN, STD)]
    solarise = sometimes(0.2, ImageOps.solarize)
    return [
        tv.Compose([crop(size, GLOBAL), *colours, blur(1.0), *last]),
        tv.Compose([crop(size, GLOBAL), *colours, blur(0.1), solarise, *last]),
        *[tv.Compose([crop(local_size, LOCAL), *colours, blur(0.5), *last])] * local_crops,
    ]


def transform_of(case: Case, images: Any) -> Callable[[int], None]:
    """Some images through the transform on PIL images; the number is a seed."""
    import torch
    from PIL import Image

    views = transforms_of(case.size, case.local_size, case.local_crops)
    opened = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images[: case.pictures]]

    def make(seed: int) -> None:
        random.seed(seed)
        torch.manual_seed(seed)
        for image in opened:
            for view in views:
                view(image)

    return make


def measured(case: Case, rounds: int) -> dict[str, Any]:
    """Images a second of both, and their ratio in every round."""
    images = pictures(case)
    makers = {"view": (view_of(case, images), case.batch), "transform": (transform_of(case, images), case.pictures)}
    for make, _ in makers.values():
        make(0)
    rates: dict[str, list[float]] = {name: [] for name in makers}
    for turn in range(rounds):
        for name in sorted(makers, reverse=turn % 2 == 0):
            make, count = makers[name]
            start = time.process_time()
            make(turn)
            rates[name].append(count / (time.process_time() - start))
    ratios = [ours / theirs for ours, theirs in zip(rates["view"], rates["transform"], strict=True)]
    return {**case._asdict(), **{f"{name}_per_s": each for name, each in rates.items()}, "ratios": ratios}


def table(rows: list[dict[str, Any]]) -> list[str]:
    """One line per case."""
    lines = ["| crops | from | batch | view, images/s | transform, images/s | ratio (least - largest) | bar |",
             "| --- | ---: | ---: | ---: | ---: | ---: | --- |"]  # fmt: skip
    for row in rows:
        ours, theirs, ratio = (statistics.median(row[k]) for k in ("view_per_s", "transform_per_s", "ratios"))
        met = verdict(ratio, row["bar"])
        spread = f"{min(row['ratios']):.1f} - {max(row['ratios']):.1f}"
        lines.append(f"| 2 x {row['size']} + {row['local_crops']} x {row['local_size']} px | {row['source']} px "
                     f"| {row['batch']} | {ours:,.0f} | {theirs:,.0f} | {ratio:.1f} ({spread}) | {met} |")  # fmt: skip
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--cases", type=int, nargs="+", default=list(range(len(CASES))), help="which lines of the table"
    )
    parser.add_argument("--dry", action="store_true", help="print the table without writing it")
    options = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    made = about(same_command("bench_multicrop.py", sys.argv[1:]), rounds=options.rounds)
    rows = [measured(CASES[i], options.rounds) for i in options.cases]
    lines = table(rows)
    print("\n".join(lines))
    if not options.dry:
        head = ["# Multi-crop on one CPU core", "", paragraph(__doc__, 2), ""]
        named = ("torch", "torchvision", "pillow")
        write(RESULTS, "multicrop", {"about": made, "rows": rows}, [*head, *lines, "", made_by(made, named)])


if __name__ == "__main__":
    main()
