"""How many training images a second does one CPU core prepare, against torchvision's transforms of PIL images?

    python benchmarks/bench_input.py                   # two minutes; nothing else should run on the machine
    python benchmarks/bench_input.py --data FOLDER     # JPEG files of one's own instead of scikit-learn's photographs
    python benchmarks/bench_input.py --rounds 3 --dry  # a quick look that writes nothing

From files, or from decoded images, to a normalised batch: crop, resize, flip, normalise, as MAE's official code does it
(torchvision.transforms on PIL images, bicubic, areas of 0.2 to 1). "torchvision.io and v2" is what its authors advise
today: tensors from the first byte on, its own decoder, transforms.v2 with antialias. "ours": images are decoded onto
the canvas and batches augmented, as in the first epoch; "from the cache": as from the second epoch on, where images fit
in memory; "cut from the files": --data.crop_from file, in every epoch. All of it runs in this process, none in loader
processes. Photographs are parts of scikit-learn's two, saved with Pillow's usual quality; in one case all of 450 x 350
pixels, in another of various sizes around that, which all but ours treat alike. One thread, process CPU time; torch
takes large pages where it is built for them (THP_MEM_ALLOC_ENABLE), as our scripts have it, for everybody. Every round
times all, in alternating order, and gives a ratio for each; tables show medians with the least and the largest. A run
replaces the section of its kind of machine in results/input.json and input.md; those of others are kept.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reports import RESULTS, about, machine, paragraph, same_command, verdict, write_parts

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
AREA = (0.2, 1.0)
BASE, V2, CUT = "torchvision on PIL", "torchvision.io and v2", "ours, cut from the files"
DECODE = "limit: decoding alone (simplejpeg)"
BATCH = {"JPEG": 128, "32 px": 256}
"""Images of a batch."""
BARS = {
    ("JPEG to 224 px", "ours"): 2.2, ("JPEG to 224 px, various sizes", "ours"): 2.2,
    ("JPEG to 224 px", CUT): 2.2, ("JPEG to 224 px, various sizes", CUT): 2.2,
    ("JPEG to 224 px", "ours, from the cache"): 4.0, ("JPEG to 224 px, various sizes", "ours, from the cache"): 4.0,
    ("JPEG to 96 px", "ours"): 2.6, ("JPEG to 96 px", CUT): 2.6,
    ("32 px", "ours"): 6.0, ("32 px, padded crop", "ours"): 9.0,
}  # fmt: skip
"""What each should at least reach, as a multiple of torchvision on PIL."""
Make = Callable[[int], Any]
"""One batch; the number is a seed."""


def photographs(count: int, *, various: bool) -> list[bytes]:
    """JPEG files of about 450 x 350 pixels: parts of scikit-learn's two photographs, at random places."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    whole: list[Any] = [Image.fromarray(load_sample_image(name)) for name in ("china.jpg", "flower.jpg")]
    rng, files = random.Random(0), []
    for i in range(count):
        width, height = (rng.randint(430, 470), rng.randint(335, 365)) if various else (450, 350)
        share = rng.uniform(0.85, 1.0) * min(640 / width, 427 / height)
        w, h = width * share, height * share
        left, top = rng.uniform(0, 640 - w), rng.uniform(0, 427 - h)
        file = io.BytesIO()
        part = whole[i % 2].resize((width, height), Image.Resampling.BICUBIC, box=(left, top, left + w, top + h))
        part.save(file, "JPEG")
        files.append(file.getvalue())
    return files


def small_pictures(count: int) -> Any:
    """Smooth coloured noise of 32 x 32 pixels, Integer[N 3 32 32] of 8 bits."""
    import torch
    import torch.nn.functional as F

    coarse = torch.rand((count, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    return (F.interpolate(coarse, size=(32, 32), mode="bicubic").clamp(0, 1) * 255).round().to(torch.uint8)


def ours_from_files(files: list[bytes], size: int, **options: Any) -> dict[str, Make]:
    """Ours, through the loader: decoded onto the canvas, cut from the files, and from the cache of decoded images."""
    import numpy as np
    import torch
    from ssl_vit.configs import DataConfig, ResolvedAugment
    from ssl_vit.data.images import ImageSet, measure
    from ssl_vit.data.loading.file_crops import file_crops
    from ssl_vit.data.loading.loader import Loader
    from ssl_vit.data.scale import PixelScale
    from ssl_vit.views.training import train_images

    rows, cfg = Files(files), replace(ResolvedAugment(AREA, flip=True, policy="none", erasing=0.0), **options)
    form, sizes = measure(rows, "files")
    images = ImageSet("files", rows, np.arange(len(files)), form, sizes, "").on_canvas(None, size)

    def prepared(cache: Any, cut: bool) -> Make:
        crops = file_crops(DataConfig(crop_from="file"), images, cfg, size) if cut else None
        loader = Loader(images, batch_size=len(files), micro_batch=len(files), seed=0, device=torch.device("cpu"),
                        cache=cache, workers=0, crops=crops)  # fmt: skip

        def make(step: int) -> Any:
            (batch,) = loader.batches(step, step + 1)
            return train_images(batch, 0, PixelScale(MEAN, STD, 8), cfg, size, torch.float32)

        return make

    return {
        "ours": prepared("none", False),
        CUT: prepared("auto", True),
        "ours, from the cache": prepared("ram", False),
    }


class Files:
    """Encoded images in memory."""

    def __init__(self, files: list[bytes]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def raw(self, row: int) -> bytes:
        return self.files[row]

    def where(self, row: int) -> str:
        return f"file {row}"


def augment(pixels: Any, sizes: Any, seed: int, size: int, options: dict[str, Any]) -> Any:
    """Decoded images through this project's view."""
    import torch
    from ssl_vit.configs import ResolvedAugment
    from ssl_vit.data.loading.loader import Batch
    from ssl_vit.data.scale import PixelScale
    from ssl_vit.views.training import train_images

    cfg = replace(ResolvedAugment(AREA, flip=True, policy="none", erasing=0.0), **options)
    words, native = torch.arange(len(pixels)), bool((sizes == pixels.shape[2:]).all())
    batch = Batch(torch.from_numpy(pixels), words, torch.zeros_like(words), torch.from_numpy(sizes), native, None)
    return train_images(batch, seed, PixelScale(MEAN, STD, 8), cfg, size, torch.float32)


def one_by_one(transform: Callable[[Any], Any], opened: Callable[[int], Any], count: int) -> Make:
    """Every image through a transform, then stacked, as a DataLoader does it."""
    import torch

    def make(seed: int) -> Any:
        random.seed(seed)
        torch.manual_seed(seed)
        return torch.stack([transform(opened(i)) for i in range(count)])

    return make


def transforms_of(size: int, *, padded: bool = False) -> dict[str, Any]:
    """The transforms of PIL images, by name; of OpenCV's images last, or nothing where it is not installed."""
    import torch
    from timm.data.transforms_factory import create_transform
    from torchvision import transforms as tv
    from torchvision.transforms import v2

    cubic = tv.InterpolationMode.BICUBIC
    crop = tv.RandomCrop(size, size // 8) if padded else tv.RandomResizedCrop(size, AREA, interpolation=cubic)
    found: dict[str, Any] = {
        BASE: tv.Compose([crop, tv.RandomHorizontalFlip(), tv.ToTensor(), tv.Normalize(MEAN, STD)])
    }
    if padded:
        return found
    found[V2] = v2.Compose(
        [
            v2.RandomResizedCrop(size, AREA, interpolation=cubic, antialias=True), v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD),
        ]
    )  # fmt: skip
    words: dict[str, Any] = {"color_jitter": None, "interpolation": "bicubic", "mean": MEAN, "std": STD}
    found["timm's create_transform"] = create_transform(size, is_training=True, scale=AREA, **words)
    found["OpenCV"] = None
    if find_spec("cv2"):
        import cv2  # pyright: ignore[reportMissingImports]
        import numpy as np

        cv2.setNumThreads(1)
        scale, shift = (np.array(v, np.float32) for v in ([1 / (255 * s) for s in STD],
                                                          [m / s for m, s in zip(MEAN, STD, strict=True)]))  # fmt: skip
        box = tv.RandomResizedCrop(size, AREA)

        def by_opencv(image: Any) -> Any:
            shape = torch.empty(1, *image.shape[:2])
            top, left, h, w = box.get_params(shape, list(box.scale), list(box.ratio))
            kind = cv2.INTER_AREA if min(h, w) > size else cv2.INTER_CUBIC
            image = cv2.resize(image[top : top + h, left : left + w], (size, size), interpolation=kind)
            image = image[:, ::-1] if random.random() < 0.5 else image
            return torch.from_numpy((image * scale - shift).transpose(2, 0, 1).copy())

        found["OpenCV"] = by_opencv
    return found


def peers(files: list[bytes], size: int) -> dict[str, Make | None]:
    """The others, from files."""
    import torch
    from PIL import Image
    from torchvision.io import decode_jpeg

    tensors = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files]

    def by_pillow(i: int) -> Any:
        return Image.open(io.BytesIO(files[i])).convert("RGB")

    def by_opencv(i: int) -> Any:
        import cv2  # pyright: ignore[reportMissingImports]
        import numpy as np

        return cv2.cvtColor(cv2.imdecode(np.frombuffer(files[i], np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)

    def by_torchvision(i: int) -> Any:
        return decode_jpeg(tensors[i])

    opened = {"OpenCV": by_opencv, V2: by_torchvision}
    return {
        name: transform and one_by_one(transform, opened.get(name, by_pillow), len(files))
        for name, transform in transforms_of(size).items()
    }


def file_case(files: list[bytes], size: int) -> dict[str, Make | None]:
    """Contestants from JPEG files."""
    linear = {
        f"{name}, bilinear": make for name, make in ours_from_files(files, size, interpolation="bilinear").items()
    }
    return {**peers(files, size), **ours_from_files(files, size), **linear, DECODE: lambda seed: decode_all(files)}


def decode_all(files: list[bytes]) -> None:
    """Pixels and nothing else."""
    import simplejpeg

    for file in files:
        simplejpeg.decode_jpeg(file)


def small_case(*, padded: bool) -> dict[str, Make | None]:
    """Contestants from decoded images of 32 pixels."""
    import numpy as np
    import torch
    from PIL import Image

    pixels = small_pictures(BATCH["32 px"]).numpy()
    sides = np.full((len(pixels), 2), 32.0, dtype=np.float32)
    arrays = [np.ascontiguousarray(image.transpose(1, 2, 0)) for image in pixels]
    opened = [Image.fromarray(array) for array in arrays]
    kept: dict[str, Any] = {"OpenCV": arrays, V2: torch.from_numpy(pixels)}
    makers: dict[str, Make | None] = {
        name: transform and one_by_one(transform, kept.get(name, opened).__getitem__, len(pixels))
        for name, transform in transforms_of(32, padded=padded).items()
    }
    for name, options in {"ours": {}, "ours, bilinear": {"interpolation": "bilinear"}}.items():
        options = {"crop": "pad", "crop_scale": (1.0, 1.0)} if padded else options
        if not padded or name == "ours":
            makers[name] = partial(lambda seed, given: augment(pixels, sides, seed, 32, given), given=options)
    return makers


def measured(name: str, makers: dict[str, Make | None], count: int, rounds: int) -> list[dict[str, Any]]:
    """Images a second of every contestant, and its ratio to the base, in every round."""
    running = {who: make for who, make in makers.items() if make is not None}
    for make in running.values():
        make(0)
    rates: dict[str, list[float]] = {who: [] for who in running}
    for turn in range(rounds):
        for who in list(running)[:: 1 if turn % 2 else -1]:
            start = time.process_time()
            running[who](turn)
            rates[who].append(count / (time.process_time() - start))
    rows: list[dict[str, Any]] = []
    for who in makers:
        found = {"case": name, "batch": count, "who": who, "bar": BARS.get((name, who))}
        if who in rates:
            found["per_s"] = rates[who]
            found["ratios"] = [a / b for a, b in zip(rates[who], rates[BASE], strict=True)]
        rows.append(found)
    return rows


def table(rows: list[dict[str, Any]]) -> list[str]:
    """One line per contestant."""
    lines = [
        "| case | batch | way | images/s | ratio (least - largest) | bar |",
        "| --- | ---: | --- | ---: | ---: | --- |",
    ]
    for row in rows:
        start = f"| {row['case']} | {row['batch']} | {row['who']} "
        if "per_s" not in row:
            lines.append(f"{start}| not installed | | |")
            continue
        ratio, ratios = statistics.median(row["ratios"]), row["ratios"]
        lines.append(f"{start}| {statistics.median(row['per_s']):,.0f} | {ratio:.2f} ({min(ratios):.2f} - "
                     f"{max(ratios):.2f}) | {verdict(ratio, row['bar'])} |")  # fmt: skip
    return lines


def where_time_goes(rows: list[dict[str, Any]]) -> list[str]:
    """Shares of decoding in our ways from files."""
    lines = ["Of the time of our ways from files:", "",
             "| case | way | decoding whole files | all else: headers, resizing, batches, normalising |",
             "| --- | --- | ---: | ---: |"]  # fmt: skip
    alone = {row["case"]: row["per_s"] for row in rows if row["who"] == DECODE}
    for row in rows:
        if row["case"] in alone and row["who"] in ("ours", CUT):
            share = statistics.median(a / b for a, b in zip(row["per_s"], alone[row["case"]], strict=True))
            if share > 1:  # large files, decoded at a part of their size
                continue
            lines.append(f"| {row['case']} | {row['who']} | {share:.0%} | {1 - share:.0%} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--data", type=Path, help="folder of JPEG files, the first of which are taken")
    parser.add_argument("--dry", action="store_true", help="print the table without writing it")
    options = parser.parse_args()

    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    import torch

    torch.set_num_threads(1)
    made = about(same_command("bench_input.py", sys.argv[1:]), rounds=options.rounds)
    count, rows = BATCH["JPEG"], []
    if options.data:
        paths = sorted(p for p in options.data.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
        sources = {"": [path.read_bytes() for path in paths[:count]]}
    else:
        sources = {"": photographs(count, various=False), ", various sizes": photographs(count, various=True)}
    for words, files in sources.items():
        for size in (224, 96):
            name = f"JPEG to {size} px{words}"
            rows += measured(name, file_case(files, size), len(files), options.rounds)
    for words, padded in (("", False), (", padded crop", True)):
        rows += measured(f"32 px{words}", small_case(padded=padded), BATCH["32 px"], options.rounds)
    print("\n".join(lines_of("", {"rows": rows})))
    if not options.dry:
        head = ["# Input on one CPU core", "", paragraph(__doc__, 2)]
        write_parts(RESULTS, "input", head, {"input": "All ways"}, {"input": {"about": made, "rows": rows}},
                    lines_of, summary)  # fmt: skip


def lines_of(_: str, part: dict[str, Any]) -> list[str]:
    """The tables of one kind of machine."""
    return [*table(part["rows"]), "", *where_time_goes(part["rows"])]


def summary(parts: dict[str, Any]) -> list[str]:
    """The table above all others: ours against each way of torchvision, on every kind of machine."""
    lines = ["", f"| case | machine | ours against {BASE} | ours against {V2} | ours from the cache against {V2} |",
             "| --- | --- | ---: | ---: | ---: |"]  # fmt: skip
    for part in parts.values():
        rates = {(row["case"], row["who"]): row["per_s"] for row in part["rows"] if "per_s" in row}
        for case in dict.fromkeys(row["case"] for row in part["rows"]):
            cells = []
            for mine, theirs in (("ours", BASE), ("ours", V2), ("ours, from the cache", V2)):
                pair = rates.get((case, mine), ()), rates.get((case, theirs), ())
                found = [a / b for a, b in zip(*pair, strict=False)]
                cells.append(f"{statistics.median(found):.2f}" if found else "")
            lines.append(f"| {case} | {machine(part)} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
