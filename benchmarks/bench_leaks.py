"""Which changed copies of test images the leak guard finds, how often it is wrong, and how long it takes.

    python benchmarks/bench_leaks.py                                        # digits and made pictures
    python benchmarks/bench_leaks.py --data cifar10 cells16::image,dna,ssc  # and these; columns after ::

Changes: of every set, changed copies of some images are looked for among up to 1,200 images of it, a change at a time.
Alarms: two parts of a set that share no image (and, where groups are known, no group) are compared, 100 images each,
many times over; whatever is found is an alarm. Alarms that turn out to be the same picture twice in the set, looked at
one by one, are named in results/leaks_copies.json, and told apart: photographs kept twice, a tile photographed
several times, and two made blobs that mirror each other to a thousandth of a pixel. Time: seconds of a search, without
decoding. Made pictures are strokes like handwriting, pieces of one texture, blank tiles, and one blob somewhere. Each
part replaces its own section of results/leaks.json and leaks.md.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw
from scipy.interpolate import CubicSpline
from scipy.ndimage import gaussian_filter
from ssl_vit.configs import DataConfig
from ssl_vit.data.images import evenly
from ssl_vit.data.sources.opening import open_images
from ssl_vit.leaks.audit import picture
from ssl_vit.leaks.duplicates import near_copies, thumbnail

from reports import RESULTS, about, paragraph, same_command, write_parts

TITLES = {"changes": "Copies found", "alarms": "False alarms", "time": "Time"}
COPIES, POOL, PART = 20, 1200, 100
Change = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def top(p: np.ndarray) -> int:
    """The brightest value of pixels [C, H, W]."""
    return int(np.iinfo(p.dtype).max)


def cropped(p: np.ndarray, rng: np.random.Generator, side: float) -> np.ndarray:
    """A random window of that share of either side."""
    height, width = (max(1, round(side * n)) for n in p.shape[1:])
    y, x = (int(rng.integers(0, n - m + 1)) for n, m in zip(p.shape[1:], (height, width), strict=True))
    return p[:, y : y + height, x : x + width]


def bordered(p: np.ndarray, share: float, value: float, *, across: bool = True) -> np.ndarray:
    """With a border of that share of the side."""
    down, right = (max(1, round(share * n)) for n in p.shape[1:])
    return np.pad(p, ((0, 0), (down, down), (right * across,) * 2), constant_values=int(value * top(p)))


def shifted(p: np.ndarray, down: int, right: int, mode: Any) -> np.ndarray:
    """Moved by some pixels."""
    height, width = p.shape[1:]
    whole = np.pad(p, ((0, 0), (abs(down),) * 2, (abs(right),) * 2), mode=mode)
    return whole[:, abs(down) - down :, abs(right) - right :][:, :height, :width]


def share_of(p: np.ndarray, share: float) -> int:
    """Pixels."""
    return max(1, round(share * min(p.shape[1:])))


def encoded(p: np.ndarray, quality: int) -> np.ndarray:
    """Through a JPEG file; 16 bits and other than one or three channels stay as they are."""
    if p.dtype != np.uint8 or len(p) not in (1, 3):
        return p
    file = io.BytesIO()
    Image.fromarray(p[0] if len(p) == 1 else p.transpose(1, 2, 0)).save(file, "JPEG", quality=quality)
    found = np.asarray(Image.open(file))
    return found[None] if found.ndim == 2 else found.transpose(2, 0, 1)


def resized(p: np.ndarray, down: float, across: float) -> np.ndarray:
    """Of other sides."""
    size = (max(2, round(across * p.shape[2])), max(2, round(down * p.shape[1])))
    planes = [Image.fromarray(plane.astype(np.float32)).resize(size, Image.Resampling.BICUBIC) for plane in p]
    return clipped(p, np.stack([np.asarray(plane) for plane in planes]))


def clipped(like: np.ndarray, p: np.ndarray) -> np.ndarray:
    """As whole levels."""
    return np.clip(np.rint(p), 0, top(like)).astype(like.dtype)


CHANGES: dict[str, Change] = {
    "mirrored": lambda p, _: p[:, :, ::-1],
    "mirrored top to bottom": lambda p, _: p[:, ::-1],
    "turned by 180 degrees": lambda p, _: p[:, ::-1, ::-1],
    "turned by 90 degrees": lambda p, _: np.rot90(p, 3, (1, 2)),
    "turned by 270 degrees": lambda p, _: np.rot90(p, 1, (1, 2)),
    "mirrored and turned by 90 degrees": lambda p, _: p.transpose(0, 2, 1),
    "mirrored and turned by 270 degrees": lambda p, _: p.transpose(0, 2, 1)[:, ::-1, ::-1],
    "inverted": lambda p, _: top(p) - p,
    "crop, 80 % of the area": lambda p, rng: cropped(p, rng, 0.8**0.5),
    "crop, 80 % of either side": lambda p, rng: cropped(p, rng, 0.8),
    "border of 5 %, black": lambda p, _: bordered(p, 0.05, 0),
    "border of 10 %, black": lambda p, _: bordered(p, 0.1, 0),
    "border of 10 %, white": lambda p, _: bordered(p, 0.1, 1),
    "bars of 12 % above and below": lambda p, _: bordered(p, 0.125, 0, across=False),
    "shifted by 1 pixel": lambda p, _: shifted(p, 1, -1, "edge"),
    "shifted by 2 pixels, black": lambda p, _: shifted(p, -2, 2, "constant"),
    "shifted by 3 pixels": lambda p, _: shifted(p, 3, 3, "edge"),
    "shifted by 5 %": lambda p, _: shifted(p, share_of(p, 0.05), -share_of(p, 0.05), "edge"),
    "shifted by 10 %": lambda p, _: shifted(p, -share_of(p, 0.1), share_of(p, 0.1), "edge"),
    "JPEG of quality 40": lambda p, _: encoded(p, 40),
    "half the size": lambda p, _: resized(p, 0.5, 0.5),
    "another shape": lambda p, _: resized(p, 0.8, 1.2),
    "brighter": lambda p, _: clipped(p, 0.8 * p + 0.17 * top(p)),
    "gamma of 1.5": lambda p, _: clipped(p, (p / top(p)) ** 1.5 * top(p)),
    "noise of a tenth of the contrast": lambda p, rng: clipped(p, p + rng.normal(0, 0.1 * p.std(), p.shape)),
    "grey": lambda p, _: clipped(p, p.mean(0, keepdims=True)),
    "mirrored, cropped to 80 %, JPEG": lambda p, rng: encoded(
        np.ascontiguousarray(cropped(p, rng, 0.8)[:, :, ::-1]), 60
    ),
    "turned, inverted, border of 5 %": lambda p, _: bordered(top(p) - np.rot90(p, 1, (1, 2)), 0.05, 0),
}


def strokes(rng: np.random.Generator) -> np.ndarray:
    """A thick curve, 28 pixels a side."""
    image, points = Image.new("L", (84, 84)), np.cumsum(rng.normal(0, 14, (int(rng.integers(3, 6)), 2)), 0)
    points -= points.mean(0)
    curve = CubicSpline(np.linspace(0, 1, len(points)), points * 24 / np.abs(points).max() + 42)(np.linspace(0, 1, 40))
    ImageDraw.Draw(image).line([tuple(p) for p in curve], fill=255, width=7, joint="curve")
    return np.asarray(image.resize((28, 28), Image.Resampling.BOX))[None]


def textures(rng: np.random.Generator) -> np.ndarray:
    """Filtered noise."""
    found = gaussian_filter(rng.normal(size=(64, 64)), 1.5, mode="wrap")
    return np.clip(128 + 40 * found / found.std(), 0, 255).astype(np.uint8)[None]


def blank_tiles(rng: np.random.Generator) -> np.ndarray:
    """Darker towards the corners, with noise of two levels."""
    y, x = np.mgrid[:64, :64] / 63 - 0.5
    return np.clip(np.rint(120 - 40 * (x * x + y * y) + rng.normal(0, 2, (64, 64))), 0, 255).astype(np.uint8)[None]


def blobs(rng: np.random.Generator) -> np.ndarray:
    """One blob somewhere."""
    (y, x), (down, right) = np.mgrid[:40, :40], rng.uniform(8, 32, 2)
    return (200 * np.exp(-((y - down) ** 2 + (x - right) ** 2) / 60)).astype(np.uint8)[None]


MADE = {"strokes": strokes, "textures": textures, "blank tiles": blank_tiles, "blobs": blobs}


class Set(NamedTuple):
    """Images that show something."""

    pixels: list[np.ndarray]
    thumbnails: np.ndarray
    names: list[str]
    groups: np.ndarray


def read(data: str, most: int) -> Set:
    """Up to so many evenly spaced images of a made set or a source."""
    if data in MADE:
        pixels = [MADE[data](np.random.default_rng(i)) for i in range(most)]
        names, groups = [f"{data} {i}" for i in range(most)], np.arange(most)
    else:
        path, _, columns = data.partition("::")
        column, _, group = columns.partition("@")
        images = open_images(DataConfig(path=path, image_column=column or None, group=group or None))
        places = evenly(len(images), most)
        pixels, names = [images.read(int(i))[0] for i in places], [images.where(int(i)) for i in places]
        groups = places if images.groups is None else images.groups[places]
    small = [thumbnail(p) for p in pixels]
    shows = [i for i, t in enumerate(small) if t is not None]
    kept = np.stack([t for t in small if t is not None])
    return Set([pixels[i] for i in shows], kept, [names[i] for i in shows], groups[shows])


def found_copies(found: Set, options: argparse.Namespace) -> dict[str, float]:
    """The share of changed copies that are found, by change."""
    places, shares = evenly(len(found.pixels), options.copies), {}
    for name, change in CHANGES.items():
        small = [thumbnail(np.ascontiguousarray(change(found.pixels[i], np.random.default_rng(i)))) for i in places]
        asked = np.stack([np.zeros((32, 32), np.uint8) if t is None else t for t in small])
        pairs = near_copies(asked, found.thumbnails)
        hits = set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
        shares[name] = float(np.mean([(n, int(place)) in hits for n, place in enumerate(places)]))
    return shares


def alarms(name: str, found: Set, options: argparse.Namespace, pictures: Path | None) -> dict[str, Any]:
    """What is found between parts that share nothing."""
    rng, pairs, each = np.random.default_rng(0), dict[tuple[str, str], dict[str, Any]](), list[list[list[str]]]()
    groups = np.unique(found.groups)
    for _ in range(options.pairs):
        sides = np.array_split(rng.permutation(groups), 2)
        one, two = (np.flatnonzero(np.isin(found.groups, side)) for side in sides)
        one, two = (np.sort(rng.permutation(part)[: options.part]) for part in (one, two))
        near, keys = near_copies(found.thumbnails[one], found.thumbnails[two]), []
        for i, j, change, distance in zip(near.first, near.second, near.change, near.distance, strict=True):
            places = sorted([int(one[i]), int(two[j])], key=lambda k: found.names[k])
            key = (found.names[places[0]], found.names[places[1]])
            if pictures is not None and key not in pairs:
                _draw(pictures / f"{name.replace(' ', '_')}_{len(pairs):03}.png", found, places)
            pairs[key] = {"change": change, "distance": round(float(distance), 4)}
            keys.append(list(key))
        each.append(keys)
    return {"pairs_of_sets": options.pairs, "part": options.part, "images": len(found.pixels), "alarms": each,
            "found": [{"first": a, "second": b, **told} for (a, b), told in pairs.items()]}  # fmt: skip


def _known() -> dict[str, list[list[str]]]:
    path = RESULTS / "leaks_copies.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _draw(path: Path, found: Set, names: list[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = [Image.open(io.BytesIO(picture(found.pixels[i]))).convert("RGB") for i in names]
    sheet = Image.new("RGB", (sum(s.width for s in shown) + 4, max(s.height for s in shown)), "white")
    sheet.paste(shown[0], (0, 0))
    sheet.paste(shown[1], (shown[0].width + 4, 0))
    sheet.save(path)


def seconds(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Of whole searches in made textures, by size."""
    rng, rows = np.random.default_rng(0), []
    for test, pool in ((500, 2_000),) if options.tiny else ((500, 2_000), (1_000, 10_000), (5_000, 100_000)):
        noise = gaussian_filter(rng.normal(size=(test + pool, 32, 32)).astype(np.float32), (0, 1.5, 1.5))
        small = np.clip(128 + 28 * noise / noise.std(axis=(1, 2), keepdims=True), 0, 255).astype(np.uint8)
        before = time.perf_counter()
        near_copies(small[:test], small[test:])
        rows.append({"test": test, "pool": pool, "seconds": time.perf_counter() - before})
        print(rows[-1], flush=True)
    return rows


def tables(name: str, rows: Any) -> list[str]:
    """A part's table."""
    if name == "changes":
        sets = list(rows)
        lines = [f"| change | {' | '.join(sets)} |", f"| --- |{' ---: |' * len(sets)}"]
        return lines + [f"| {c} | {' | '.join(f'{rows[s][c]:.0%}' for s in sets)} |" for c in rows[sets[0]]]
    if name == "time":
        lines = ["| test images | images of the pool | seconds |", "| ---: | ---: | ---: |"]
        return lines + [f"| {r['test']:,} | {r['pool']:,} | {r['seconds']:.0f} |" for r in rows]
    lines = ["| set | images | pairs of sets | with a false alarm | the same picture twice in the set, found |",
             "| --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    total = 0
    for key, r in rows.items():
        known = _known().get(key, [])
        wrong = sum(any(pair not in known for pair in keys) for keys in r["alarms"])
        copies, total = sum([one["first"], one["second"]] in known for one in r["found"]), total + wrong
        lines.append(f"| {key} | {r['images']:,} | {r['pairs_of_sets']:,} | {wrong:,} | {copies:,} |")
    return [*lines, f"| all |  | {sum(r['pairs_of_sets'] for r in rows.values()):,} | {total:,} |  |"]


def write(out: Path, parts: dict[str, Any]) -> None:
    """Puts the measured parts into leaks.json and writes leaks.md from all of it."""
    head = ["# The leak guard", "", paragraph(__doc__, 2)]
    write_parts(out, "leaks", head, TITLES, parts, lambda name, part: tables(name, part["rows"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=[], help="sources; PATH::COLUMNS@GROUP names columns")
    parser.add_argument("--only", choices=TITLES, nargs="+", default=list(TITLES), help="these parts")
    parser.add_argument("--pairs", type=int, default=112, help="pairs of sets, of each set")
    parser.add_argument("--copies", type=int, default=COPIES, help="changed copies, of each set and change")
    parser.add_argument("--pictures", type=Path, help="folder for what is found between parts that share nothing")
    parser.add_argument("--part", type=int, default=PART, help="images of a part")
    parser.add_argument("--tell", action="store_true", help="measure nothing, write leaks.md again")
    parser.add_argument("--tiny", action="store_true", help="little of everything, to see that it works")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of leaks.json and leaks.md")
    options = parser.parse_args()
    if options.tiny:
        options.pairs, options.copies = 2, 6
    torch.set_num_threads(1)
    named = {Path(data.partition("::")[0]).name: data for data in options.data}
    named = {"digits": "digits"} | named | {name: name for name in MADE}
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    made = about(same_command("bench_leaks.py", words))
    options.only = [] if options.tell else options.only
    parts: dict[str, Any] = {name: {"about": made, "rows": {}} for name in options.only}
    for name, data in named.items() if {"changes", "alarms"} & set(options.only) else ():
        found, before = read(data, 120 if options.tiny else POOL), time.perf_counter()
        if "changes" in parts:
            parts["changes"]["rows"][name] = found_copies(found, options)
        if "alarms" in parts:
            parts["alarms"]["rows"][name] = alarms(name, found, options, options.pictures)
        print(name, len(found.pixels), f"{time.perf_counter() - before:.0f} s", flush=True)
        write(options.out, {part: told for part, told in parts.items() if told["rows"]})
    if "time" in parts:
        parts["time"]["rows"] = seconds(options)
    write(options.out, parts)


if __name__ == "__main__":
    main()
