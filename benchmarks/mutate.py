"""What becomes of damaged files: images of every format through every source, and the files of sources themselves.

    python benchmarks/mutate.py --files 2000 --containers 400

Every image file, and every table or tar file, has one damage: flipped bits, a cut, a block of zeros or noise, a block
twice, noise in its header, or a number in it that becomes as large as it can be. Loader processes open and decode them,
so that a crash ends one of those, and is counted. A file that takes a minute of the processor, or ten of the clock,
counts as a hang. Good ends are three: the image is read, it is named as unreadable, or one line refuses the source.
Damages follow from --seed, a set's number and a file's place in it. Writes results/mutate.json and results/mutate.md.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import resource
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tifffile
from datasets import config
from PIL import Image
from ssl_vit.configs import SourceConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding import current
from ssl_vit.data.decoding.decode import Format, decode, read_header
from ssl_vit.data.decoding.formats import Unreadable
from ssl_vit.data.loading.processes import in_processes
from ssl_vit.data.sources.locate import open_source

from odd_files import READERS, Source, write_sources
from reports import RESULTS, about, made_by, same_command, write

IN_A_SET = 20
CPU_SECONDS, SECONDS = 60.0, 600
"""After which a file counts as a hang: of the processor, and of the clock."""
HUNG = ("SIGVTALRM", "SIGALRM")


def _saved(kind: str, mode: str = "RGB", **options: Any) -> Callable[[np.ndarray], bytes]:
    def encode(pixels: np.ndarray) -> bytes:
        file = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(file, kind, **options)
        return file.getvalue()

    return encode


def _tiff(shape: tuple[int, ...], dtype: str, **options: Any) -> Callable[[np.ndarray], bytes]:
    def encode(pixels: np.ndarray) -> bytes:
        file = io.BytesIO()
        tifffile.imwrite(file, np.resize(pixels, shape).astype(dtype), **options)
        return file.getvalue()

    return encode


def _png16(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0].astype(np.uint16) * 257).save(file, "PNG")
    return file.getvalue()


def _ppm16(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    return b"P6 %d %d 65535\n" % (width, height) + (pixels.astype(">u2") * 257).tobytes()


FORMATS: dict[str, Callable[[np.ndarray], bytes]] = {
    "JPEG": _saved("JPEG"), "JPEG progressive": _saved("JPEG", progressive=True), "JPEG CMYK": _saved("JPEG", "CMYK"),
    "PNG": _saved("PNG"), "PNG grey": _saved("PNG", "L"), "PNG palette": _saved("PNG", "P"), "PNG 16": _png16,
    "GIF": _saved("GIF", "P"), "BMP": _saved("BMP"), "PPM": _saved("PPM"), "PPM 16": _ppm16,
    "WebP": _saved("WEBP"), "WebP lossless": _saved("WEBP", lossless=True), "AVIF": _saved("AVIF"),
    "JPEG 2000": _saved("JPEG2000"), "TIFF": _saved("TIFF"), "TIFF LZW": _saved("TIFF", compression="tiff_lzw"),
    "TIFF deflate": _saved("TIFF", compression="tiff_adobe_deflate"), "TIFF JPEG": _saved("TIFF", compression="jpeg"),
    "TIFF fax": _saved("TIFF", "1", compression="group4"),
    "TIFF 16 pages": _tiff((4, 20, 24), "uint16"), "TIFF channels": _tiff((20, 24, 5), "uint8", planarconfig="contig"),
    "BigTIFF": _tiff((20, 24), "uint16", bigtiff=True),
}  # fmt: skip
ENDINGS = {"JPEG": "jpg", "JPEG 2000": "jp2", "BigTIFF": "tif"}


def ending(kind: str) -> str:
    """What files of a format end in."""
    return ENDINGS.get(kind) or ENDINGS.get(kind.split()[0], kind.split()[0].lower())


def damaged(raw: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """A file with one damage, and its name."""
    content, size = bytearray(raw), len(raw)
    place = int(rng.integers(size))
    length = int(rng.integers(1, max(2, size // 4)))
    what = str(rng.choice(["bits", "cut", "zeros", "noise", "twice", "header", "large number"]))
    if what == "bits":
        for bit in rng.integers(8 * size, size=int(rng.integers(1, 20))).tolist():
            content[bit // 8] ^= 1 << bit % 8
    elif what == "cut":
        del content[place:]
    elif what == "zeros":
        content[place : place + length] = bytes(len(content[place : place + length]))
    elif what == "noise":
        content[place : place + length] = rng.bytes(len(content[place : place + length]))
    elif what == "twice":
        content[place:place] = content[place : place + length]
    elif what == "header":
        for byte in rng.integers(min(64, size), size=int(rng.integers(1, 6))).tolist():
            content[byte] = int(rng.integers(256))
    else:
        place = int(rng.integers(max(1, min(size, 512) - 4)))
        content[place : place + 4] = bytes([255] * len(content[place : place + 4]))
    return what, bytes(content)


class Set(NamedTuple):
    """Files that are tried together."""

    number: int
    containers: bool
    """Whether the tables and tar files are damaged, and not the images."""
    size: int


class Outcome(NamedTuple):
    """What became of a set: how often, by source, format and end; what was wrong; and the memory it took beyond."""

    ends: Counter[tuple[str, str, str]]
    wrong: list[str]
    grown: int


class Trying:
    """Sets in a loader process."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __getitem__(self, key: Set) -> Outcome:
        ends, wrong = Counter[tuple[str, str, str]](), list[str]()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as scratch, redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder = Path(scratch)
            config.HF_DATASETS_CACHE = folder / "cache"
            names, kinds = self._write(key, folder / "files")
            sources = write_sources(folder / "files", names, folder / "sources")
            if key.containers:
                sources = self._damage(key, sources)
            seen: dict[int, dict[str, str]] = {}
            for name, source in sources.items():
                for row, end, what in _tried(f"set {key.number} {name}", source):
                    kind = kinds[row] if not key.containers and 0 <= row < len(kinds) else name
                    ends[name, kind, end] += 1
                    if end in ("error", "died"):
                        wrong.append(f"set {key.number}, {name}, row {row} ({kind}): {what}")
                    seen.setdefault(row, {})[name] = what
            if not key.containers:
                wrong += [
                    f"set {key.number}, row {row} ({kinds[row]}): not the same through all sources: {found}"
                    for row, found in seen.items()
                    if 0 <= row < len(kinds) and len(set(found.values())) > 1
                ]
        return Outcome(ends, wrong, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

    def _write(self, key: Set, folder: Path) -> tuple[list[str], list[str]]:
        """Names and formats of files, the first of them whole."""
        folder.mkdir()
        every, names, kinds = list(FORMATS), list[str](), list[str]()
        for place in range(key.size):
            rng = np.random.default_rng([self.seed, key.number, place])
            kind = every[(key.number * IN_A_SET + place) % len(every)]
            raw = FORMATS[kind](rng.integers(256, size=(20, 24, 3), dtype=np.uint8))
            names.append(f"{place:03}.{ending(kind)}")
            kinds.append(kind)
            (folder / names[-1]).write_bytes(raw if key.containers else damaged(raw, rng)[1])
        return names, kinds

    def _damage(self, key: Set, sources: dict[str, Source]) -> dict[str, Source]:
        """The same sources with a damage in each file."""
        found: dict[str, Source] = {}
        done: set[str] = set()
        for name, source in sources.items():
            path = Path(source.path)
            if source.dataset is not None or path.is_dir():
                continue
            if source.path not in done:
                done.add(source.path)
                rng = np.random.default_rng([self.seed, key.number, len(done), 1])
                path.write_bytes(damaged(path.read_bytes(), rng)[1])
            found[name] = source
        return found


def _tried(name: str, source: Source) -> Iterator[tuple[int, str, str]]:
    """Row, end and what was seen of every image of a source; row -1 where it cannot be opened."""
    with _guarded(lambda _: f"{name}, opened", -1) as state:
        if not state:
            cfg = SourceConfig(path=source.path, stream=source.stream)
            parts = open_source(cfg, labelled=False, dataset=source.dataset)
            rows = [(part.rows, row) for part in parts.values() for row in range(len(part.rows))]
            state["rows"] = rows
    if "end" in state:
        yield -1, state["end"], state["what"]
        return
    for row, (of, number) in enumerate(state["rows"]):
        with _guarded(lambda i: f"{name}, row {i}", row) as state:
            if not state:
                raw = of.raw(number)
                header = read_header(raw)
                pixels, _ = decode(raw, Format(header.channels, header.bits), None)
                seen = hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()[:16]
                state |= {"end": "read", "what": f"{pixels.shape} {seen}"}
        yield row, state["end"], state["what"]


@contextmanager
def _guarded(where: Callable[[int], str], row: int) -> Iterator[dict[str, Any]]:
    """How something ends: named, refused, with an error, or with its process, in which case it is not begun again."""
    state: dict[str, Any] = {}
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    signal.alarm(SECONDS)
    try:
        try:
            current.begin(where, row)
        except Unreadable as error:
            state |= {"end": "died", "what": str(error)}
        yield state
    except (Unreadable, UserError, OSError) as error:
        one = " ".join(str(getattr(error, "strerror", None) or error).split())
        state |= {"end": "refused" if isinstance(error, UserError) else "named", "what": one[:200]}
    except Exception as error:
        state |= {"end": "error", "what": f"{type(error).__name__}: {str(error)[:200]}"}
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.alarm(0)


class Tally(NamedTuple):
    """All sets together."""

    files: int
    containers: int
    ends: Counter[tuple[str, str, str]]
    wrong: list[str]
    grown: int

    @property
    def hangs(self) -> int:
        """Files that took too long."""
        return sum(any(name in line for name in HUNG) for line in self.wrong)

    @property
    def crashes(self) -> int:
        """Files that ended a process, or were told by something else than a reason or a line."""
        return sum(end in ("error", "died") for (_, _, end), n in self.ends.items() for _ in range(n)) - self.hangs


def tally(files: int, containers: int, seed: int, workers: int) -> Tally:
    """Tries that many damaged images, and that many sets of damaged tables and tar files."""
    sets = [Set(n, False, min(IN_A_SET, files - n * IN_A_SET)) for n in range(-(-files // IN_A_SET))]
    sets += [Set(len(sets) + n, True, IN_A_SET) for n in range(containers)]
    ends, wrong, grown = Counter[tuple[str, str, str]](), list[str](), 0
    for done, outcome in enumerate(in_processes(Trying(seed), sets, workers), 1):
        ends += outcome.ends
        wrong += outcome.wrong
        grown = max(grown, outcome.grown)
        sys.stderr.write(f"\r{done} of {len(sets)} sets, {len(wrong)} wrong")
    sys.stderr.write("\n")
    return Tally(files, containers, ends, wrong, grown)


def _table(found: Tally, place: int, title: str) -> list[str]:
    """Ends by source (0) or format (1)."""
    shown = ("read", "named", "refused", "error", "died")
    lines = [f"| {title} | " + " | ".join(shown) + " |", "|---" * (len(shown) + 1) + "|"]
    for name in dict.fromkeys(key[place] for key in found.ends):
        numbers = [sum(n for key, n in found.ends.items() if key[place] == name and key[2] == end) for end in shown]
        lines.append(f"| {name} | " + " | ".join(map(str, numbers)) + " |")
    return lines


def report(found: Tally, made: dict[str, Any]) -> list[str]:
    """The tally as lines of Markdown."""
    return [
        "# Damaged files through every source", "",
        f"{found.files:,} damaged image files through every source and {found.containers:,} sets of damaged tables and "
        f"tar files: **{found.crashes} crashes, {found.hangs} hangs**. The most memory that a set of {IN_A_SET} took "
        f"beyond what its process had: {found.grown / 1024:,.0f} MB.", "",
        "`read`: pixels came out; `named`: the image counts as unreadable, with a reason; `refused`: one line refuses "
        "the source; `error`: anything else was raised; `died`: the process ended.", "",
        *_table(found, 0, "source"), "", *_table(found, 1, "format, or damaged table"), "",
        *(["What was wrong:", "", *(f"- {line}" for line in found.wrong)] if found.wrong else ["Nothing was wrong."]),
        "", made_by(made, READERS),
    ]  # fmt: skip


def main() -> None:
    """Writes results/mutate.json and results/mutate.md; status 1 where anything crashed or hung."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000, help="damaged images")
    parser.add_argument("--containers", type=int, default=400, help="sets of damaged tables and tar files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    words = parser.parse_args()
    found = tally(words.files, words.containers, words.seed, words.workers)
    made = about(same_command("mutate.py", sys.argv[1:]), f"CPU, {words.workers} processes")
    content = {
        "about": made, "files": found.files, "containers": found.containers,
        "crashes": found.crashes, "hangs": found.hangs, "most_memory_kib": found.grown, "wrong": found.wrong,
        "ends": [[*key, n] for key, n in sorted(found.ends.items())],
    }  # fmt: skip
    write(words.out, "mutate", content, report(found, made))
    sys.stdout.write(f"{words.out / 'mutate.md'}: {found.crashes} crashes, {found.hangs} hangs\n")
    sys.exit(bool(found.crashes or found.hangs))


if __name__ == "__main__":
    main()
