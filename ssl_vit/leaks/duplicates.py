"""Images that are copies of one another, found by what they look like: thumbnails, a search, a decision.

The search looks through flips and turns, inversion, cuts and borders (``registering``). What is found decides together
with the collection: how many pairs as near as one chance would give follows from the distances of images to their
neighbours, so handwritten digits are alike without being copies, and so are blank tiles and pieces of one texture.
Smooth cells are, too, and their copies are told by their grain: what is too fine to be searched for, yet agrees.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image

from ssl_vit.data.decoding.formats import Pixels
from ssl_vit.leaks.registering import (
    CENTRE,
    INSIDE,
    SIDE,
    TURNS,
    Registered,
    Ways,
    best_ways,
    described,
    register,
    resemblance,
    weights_of,
)

FARTHEST = 0.35
"""Near copies differ by at most this share of their contrast, in register."""
BY_CHANCE = 5e-4
"""Near copies are so near that chance would give fewer such pairs than this in all that are compared."""

_LEVELS = 28.0  # grey levels of a stored thumbnail per standard deviation of its own
_FLAT = 0.5  # standard deviation in levels of the file below which an image shows nothing
_FRAME = 0.2  # share of a side that a frame takes on either end at most
_ALL = 0.9  # share of the line inside a frame that is not the frame's colour
_CROWD = 2000  # images that stand for all others
_NEIGHBOURS = (40, 24)  # of the crowd that show how near others are anyway: as they lie, in register
_LIKELY = 48  # of the crowd that are brought into register to find these
_COPIES = 10  # of them that may be copies as well
_CLOSE = 0.98  # cosine above which two of the crowd may be copies of one picture
_FEWEST = 12  # images of which it can be told how near they are anyway
_SAMPLE = (256, 16)  # images whose surroundings stand for all: as they lie, in register
_PRIOR = (10, 15)  # neighbours that the whole collection's dimension counts as much as: as they lie, in register
_MOST = 128  # copies of an image that are looked for in one search
_AT_ONCE = 6  # of them; more where any of these is one
_ALIKE = 0.4  # cosine below which nothing is brought into register
_CUT = 0.04  # share of a side by which a picture counts as cut or shifted
_TOGETHER = 0.5  # correlation from which grain is taken to follow what is coarse wherever pairs are very near
_WHOLE = 1 - 1e-6  # cosine above which rounding decides
_UNLIKELY = 1e-2  # grain that agrees is taken to do so by chance this often at least
_ITSELF = 1 - 1e-5  # cosine above which a neighbour is the image itself, or tells as little
_ROWS, _COLUMNS = 1024, 2048  # images compared at a time
_MANY = 2e9  # pairs above which cuts and borders are not looked for


class Pairs(NamedTuple):
    """Near duplicates, every pair once."""

    first: Int[np.ndarray, " p"]
    """Places of the images."""
    second: Int[np.ndarray, " p"]
    """In one collection always after ``first``."""
    change: list[str]
    """What makes one of the other, in words; empty where nothing but small changes."""
    distance: Float[np.ndarray, " p"]
    """Root mean square difference of what both show as a share of its contrast, fine structure weighing as much as
    coarse: 0 is the same picture, and two that have nothing in common are at 1.41."""


def thumbnail(pixels: Pixels) -> UInt8[np.ndarray, "32 32"] | None:
    """An image in grey, at 32 x 32, its brightness and contrast made equal to all others'.

    Args:
        pixels: uint8 or uint16, [C, H, W]. 8-bit RGB weighs colours alike; of other images every channel counts as
            much as its contrast beside the strongest one's would after standardising.

    Returns:
        Levels around 128; None for images that show nothing at all.
    """
    planes = _unframed(pixels).astype(np.float32)
    if len(planes) == 3 and pixels.dtype == np.uint8:
        planes = planes.mean(axis=0, keepdims=True)
    small = np.stack([_reduced(plane) for plane in planes])
    spread = small.std(axis=(1, 2))
    if spread.max() < _FLAT:
        return None
    small = small[spread >= _FLAT] - small[spread >= _FLAT].mean(axis=(1, 2), keepdims=True)
    grey = (small / spread[spread >= _FLAT, None, None]).mean(axis=0)
    if grey.std() < 1e-3:  # channels that cancel each other: the strongest one speaks for all
        grey = small[int(small.std(axis=(1, 2)).argmax())]
    return np.clip(np.rint(grey / grey.std() * _LEVELS + 128), 0, 255).astype(np.uint8)


def _unframed(pixels: Pixels) -> Pixels:
    """An image without lines of one colour along its sides, where nearly all of what comes next is another colour.

    Not the background of a drawing: there only some of the next line is something else.
    """
    for corner in (0, -1):
        height, width = pixels.shape[1:]
        differs = (pixels != pixels[:, corner, corner, None, None]).any(axis=0)
        rows, columns = np.flatnonzero(differs.any(axis=1)), np.flatnonzero(differs.any(axis=0))
        if not len(rows):
            break
        top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
        box = differs[top:bottom, left:right]
        full = [line.mean() >= _ALL for line in (box[0], box[-1], box[:, 0], box[:, -1])]
        down, across = _FRAME * height, _FRAME * width
        pixels = pixels[
            :,
            top if full[0] and top <= down else 0 : bottom if full[1] and height - bottom <= down else height,
            left if full[2] and left <= across else 0 : right if full[3] and width - right <= across else width,
        ]
    return pixels


def _reduced(plane: Float[np.ndarray, "H W"]) -> Float[np.ndarray, "32 32"]:
    return np.asarray(Image.fromarray(plane).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def near_duplicates(thumbnails: UInt8[np.ndarray, "n 32 32"]) -> Pairs:
    """All pairs of one collection that look alike, and much more so than its images do anyway.

    Flips, turns, inversion and one-colour borders are looked through; cuts are not, as this is of every pair.

    Args:
        thumbnails: Of all that show anything, of exact duplicates only one.
    """
    return _found(thumbnails, thumbnails, within=True, windows=False)


def near_copies(asked: UInt8[np.ndarray, "n 32 32"], stored: UInt8[np.ndarray, "m 32 32"]) -> Pairs:
    """Pairs of an image (``first``) and a copy of it in another collection (``second``), as ``near_duplicates``.

    Cuts, other borders and shifts are looked through, too, unless there are more than two thousand million pairs. Every
    copy is in some pair; one that shows several of the images may be in a pair with one of them alone.
    """
    windows = len(asked) * len(stored) <= _MANY
    some, rest, parts = np.arange(len(asked)), np.arange(len(stored)), list[Pairs]()
    while len(some) or not parts:
        found = _found(asked[some], stored[rest], within=False, windows=windows)
        parts.append(found._replace(first=some[found.first], second=rest[found.second]))
        # Of some it was not looked whether they have more copies still.
        some = some[np.bincount(found.first, minlength=len(some)) >= _MOST]
        rest = np.setdiff1d(rest, parts[-1].second)
    first, second, distance = (np.concatenate([getattr(part, name) for part in parts]) for name in _NUMBERS)
    return Pairs(first, second, [words for part in parts for words in part.change], distance)


def _found(asked: np.ndarray, stored: np.ndarray, *, within: bool, windows: bool) -> Pairs:
    crowd = _Crowd(asked if within else np.concatenate([asked, stored]), windows=windows)
    place = _nearest(asked, stored, crowd.weights, within=within, windows=windows)
    pairs = len(asked) * len(stored) / (1 + within)
    around = [[np.full((len(images), 2), np.nan) for images in (asked, stored)] for _ in range(2)]
    none = np.empty(0, dtype=np.int64)
    parts = [Pairs(none, none, [], none.astype(np.float32))]
    left = np.arange(len(asked))  # images of which more copies are looked for
    for start in range(0, place.shape[1], _AT_ONCE):
        chosen = place[left, start : start + _AT_ONCE]
        first, second = np.repeat(left, chosen.shape[1]), chosen.reshape(-1)
        first, second = first[second >= 0], second[second >= 0]
        if not len(first):
            break
        ways = best_ways(asked[first], stored[second], crowd.weights, windows=windows)
        found = register(asked[first], stored[second], ways, crowd.weights)
        distance = np.sqrt(np.maximum(0, 2 - 2 * found.score))
        near, whole = distance <= FARTHEST, _compared_whole(ways, found)
        # Nearer than neighbours as they lie, and, which takes longer to know, than neighbours in register.
        for closely, known in enumerate(around):
            for images, places, own, counts in zip((asked, stored), (first, second), known, whole, strict=True):
                new = np.unique(places[near & counts])
                new = new[np.isnan(own[new, 0])]
                own[new] = crowd.surroundings(images[new], closely=bool(closely))
                told = np.flatnonzero(near & counts)
                chance = BY_CHANCE / pairs / crowd.share(closely=bool(closely)) / crowd.likelihood(found, told)
                near[told] = distance[told] <= own[places[told], 0] * np.minimum(chance, 1) ** own[places[told], 1]
        kept = np.flatnonzero(near)
        words = [_words(ways, found, p) for p in kept.tolist()]
        parts.append(Pairs(first[kept], second[kept], words, distance[kept]))
        left = np.unique(first[kept])
    first, second, distance = (np.concatenate([getattr(part, name) for part in parts]) for name in _NUMBERS)
    words = [words for part in parts for words in part.change]
    if within:  # both may have found each other
        first, second = np.minimum(first, second), np.maximum(first, second)
    once = np.unique(first * max(1, len(stored)) + second, return_index=True)[1]
    return Pairs(first[once], second[once], [words[p] for p in once], distance[once])


_NUMBERS = ("first", "second", "distance")


def _compared_whole(ways: Ways, found: Registered) -> tuple[Bool[np.ndarray, " p"], Bool[np.ndarray, " p"]]:
    """Of which picture others may have a window that looks like it by chance: the whole one, or both.

    Where neither is a window of the other, it matters for both.
    """
    start, end = found.start, found.start + found.length
    inside = ((start > -_CUT) & (end < 1 + _CUT)).all(axis=1) & (found.length < 1 - _CUT).any(axis=1)
    outside = ((start < _CUT) & (end > 1 - _CUT)).all(axis=1) & (found.length > 1 + _CUT).any(axis=1)
    through, whole = ~inside | outside, ~outside | inside
    swapped = ways.side == 1
    return np.where(swapped, whole, through), np.where(swapped, through, whole)


def _words(ways: Ways, found: Registered, p: int) -> str:
    """What makes one picture of a pair of the other."""
    cut = np.abs(found.length[p] - 1).max() > _CUT
    moved = not cut and np.abs(found.start[p]).max() > _CUT
    turn = int(ways.turn[p])
    if ways.side[p] == 1:  # that of the first is told as the second's
        turn = {5: 6, 6: 5}.get(turn, turn)
    told = (TURNS[turn], "inverted" if ways.inverted[p] else "", "cut or with a border" if cut else "")
    return ", ".join(filter(None, (*told, "shifted" if moved else "")))


def _nearest(
    asked: np.ndarray, stored: np.ndarray, weights: torch.Tensor, *, within: bool, windows: bool
) -> Int[np.ndarray, "n k"]:
    """Places of the images that every one resembles most, the most first; -1 where it resembles none."""
    parts = [np.empty((0, min(_MOST, len(stored))), dtype=np.int64)]
    for row in range(0, len(asked), _ROWS):
        own = described(asked[row : row + _ROWS], weights, windows=windows)
        best, place = torch.zeros((len(own), 0)), torch.zeros((len(own), 0), dtype=torch.int64)
        for start in range(0, len(stored), _COLUMNS):
            others = described(stored[start : start + _COLUMNS], weights, windows=windows)
            alike, numbers = _compared(own, others), torch.arange(start, start + len(others)).expand(len(own), -1)
            if within:
                alike[numbers == torch.arange(row, row + len(own))[:, None]] = 0  # itself
            both = torch.cat([best, alike], 1)
            best, which = both.topk(min(_MOST, both.shape[1]), 1)
            place = torch.cat([place, numbers], 1).gather(1, which)
        parts.append(torch.where(best > _ALIKE, place, -1).numpy())
    return np.concatenate(parts)


def _compared(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """Cosines [n, m] of pictures given by their windows.

    Either whole with all windows of the other, and the middle of one with windows of the other.
    """
    found = resemblance(one, two[:, 0])
    if one.shape[1] == 1:
        return found
    torch.maximum(found, resemblance(two[:, 1:], one[:, 0]).T, out=found)
    return torch.maximum(found, resemblance(one[:, INSIDE], two[:, CENTRE]), out=found)


class _Crowd:
    """Images that stand for all, and how densely they lie around others.

    The share of all within a distance r of an image is (r / scale) ** dimension. The dimension is Levina and Bickel's
    (2004), from the distances to the nearest of the crowd. The very nearest may be copies, so of them it is only taken
    that they are nearer than the others; and because neighbours are few, each image's own is drawn towards that of the
    whole collection. Register takes from unlike pictures, too, what sets them apart: any blob lies on any other.
    """

    def __init__(self, thumbnails: UInt8[np.ndarray, "n 32 32"], *, windows: bool) -> None:
        self.thumbnails, self.windows = _thinned(thumbnails[_spread(len(thumbnails), _CROWD)]), windows
        self.weights = weights_of(self.thumbnails)
        self.others = described(self.thumbnails, self.weights, windows=windows)
        self.known: dict[bool, tuple[float, Float[np.ndarray, "2 q"]]] = {}
        """What ``_usual`` found, as images lie and in register."""

    def surroundings(self, asked: UInt8[np.ndarray, "m 32 32"], *, closely: bool) -> Float[np.ndarray, "m 2"]:
        """The distance of each image's last neighbour, and the inverse of the dimension around it.

        Chance gives fewer than so many pairs within the distance times (so many / ``share`` / all pairs) ** inverse.

        Args:
            asked: Images.
            closely: Whether neighbours are brought into register.
        """
        if len(self.thumbnails) < _FEWEST or not len(asked):
            return np.tile([FARTHEST, 0.0], (len(asked), 1))
        neighbours, copies = self._counts(closely)
        free, prior, usual = neighbours - copies - 1, _PRIOR[closely], self._usual(closely)[0]
        reach, logs, _ = self._spacing(asked, closely)
        dimension = (free + prior) / np.maximum(logs + prior * usual / free, 1e-6)
        return np.stack([reach, 1 / dimension], 1)

    def share(self, *, closely: bool) -> float:
        """Which share of all images is as near as an image's last neighbour."""
        return self._counts(closely)[0] / max(1, len(self.thumbnails))

    def likelihood(self, found: Registered, told: Int[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
        """How likely it is by chance that the grain of some pairs agrees as much as it does, at least ``_UNLIKELY``.

        A logistic distribution around what is usual among pairs that are as much alike in what is coarser; its tail is
        heavier than a normal one's. Where nothing is finer, or it goes with what is coarser, nothing is unlikely: of
        two strokes that nearly lie on each other the edges do, too, and as closely. What is usual is known of pairs
        that are further apart, so the more grain goes with the rest there, the more it is taken to keep up nearby.
        """
        if len(self.thumbnails) < _FEWEST or not len(told):
            return np.ones(len(told))
        known = self._usual(closely=True)[1]
        if known.shape[1] < _FEWEST:
            return np.ones(len(told))
        middle = known.mean(axis=1, keepdims=True)
        coarse, grain = known - middle
        slope = (coarse * grain).mean() / max((coarse**2).mean(), 1e-6)
        deviation = max((grain - slope * coarse).std(), 0.02)
        together = slope * coarse.std() / max(grain.std(), 1e-6)
        slope += max(1 - slope, 0) * float(np.clip(together / _TOGETHER, 0, 1))
        coarse, grain = _agreement(found)[:, told] - middle
        above = (grain - slope * coarse) / deviation
        return np.clip(2 / (1 + np.exp(np.clip(above * np.pi / 3**0.5, 0, 50))), _UNLIKELY, 1)

    def _usual(self, closely: bool) -> tuple[float, Float[np.ndarray, "2 q"]]:
        """Of a sample: what ``_spacing`` has, the sum of logarithms as the mean."""
        if closely not in self.known:
            sample = self.thumbnails[_spread(len(self.thumbnails), _SAMPLE[closely])]
            _, logs, agreement = self._spacing(sample, closely)
            self.known[closely] = (float(logs.mean()), agreement)
        return self.known[closely]

    def _counts(self, closely: bool) -> tuple[int, int]:
        """How many neighbours tell, and how many of them may be copies."""
        neighbours = min(_NEIGHBOURS[closely], len(self.thumbnails) - 1)
        return neighbours, min(_COPIES, neighbours // 2)

    def _spacing(
        self, asked: np.ndarray, closely: bool
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"], Float[np.ndarray, "2 q"]]:
        """The distance of each image's last neighbour, and the sum of log(this / the others' distances).

        The nearest ``copies`` count as being where the first after them is. Brought into register, also how much
        images agree with those after them: in what is coarse, and in their grain, as Fisher's z.
        """
        reach, logs = np.empty((2, len(asked)), dtype=np.float32)
        agreement = [np.empty((2, 0))]
        neighbours, copies = self._counts(closely)
        likely = min(_LIKELY, len(self.thumbnails) - 1) if closely else neighbours
        for start in range(0, len(asked), _ROWS):
            part = asked[start : start + _ROWS]
            own = described(part, self.weights, windows=closely and self.windows)
            alike = _compared(own, self.others) if closely else resemblance(self.others, own[:, 0]).T
            alike[alike > _ITSELF] = -1
            score, place = alike.topk(likely, 1)
            if closely:
                first, second = np.repeat(part, likely, axis=0), self.thumbnails[place.flatten().numpy()]
                ways = best_ways(first, second, self.weights, windows=self.windows)
                found = register(first, second, ways, self.weights)
                score = torch.where(score < 0, score, torch.from_numpy(found.score).view(score.shape))
                order = score.argsort(1, descending=True)
                ranked = [torch.from_numpy(z).view(score.shape).gather(1, order)[:, copies:] for z in _agreement(found)]
                told = score.gather(1, order)[:, copies:] >= 0
                agreement.append(np.stack([z[told].numpy() for z in ranked]))
            away = np.sqrt(np.maximum(2 - 2 * score.topk(neighbours, 1)[0].numpy(), 1e-6))
            log = np.log(away[:, -1:] / away[:, copies:-1])
            reach[start : start + _ROWS], logs[start : start + _ROWS] = away[:, -1], log.sum(1) + copies * log[:, 0]
        return reach, logs, np.concatenate(agreement, 1)


def _thinned(crowd: UInt8[np.ndarray, "n 32 32"]) -> UInt8[np.ndarray, "m 32 32"]:
    """A crowd in which no picture stands so often that its copies would be all that an image has as neighbours."""
    whole = described(crowd, weights_of(crowd), windows=False)
    before = torch.triu(resemblance(whole, whole[:, 0]) > _CLOSE, 1).sum(0).numpy()
    return crowd[before < _COPIES // 2]


def _agreement(found: Registered) -> Float[np.ndarray, "2 p"]:
    """How much pairs agree in what is coarse, and in their grain: cosines as Fisher's z, which spreads evenly."""
    return np.arctanh(np.clip([found.score, found.grain], -_WHOLE, _WHOLE))


def _spread(count: int, most: int) -> Int[np.ndarray, " m"]:
    """Up to so many of the numbers below ``count``, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))
