"""Options for images: where they are, how they are read, how they are varied in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from ssl_vit.configs.facts import LATER, NO_EFFECT, SAME_RUN, Range
from ssl_vit.configs.settled import OPEN, Resolved
from ssl_vit.core.errors import UserError

OBJECT = "python:"
"""How the name of images begins that are an object of Python and have no path (``data.sources.objects``)."""


@dataclass(frozen=True)
class SourceConfig:
    """Where images are and which of their columns mean what."""

    path: str | None = None
    """Where the images are."""
    labels: str | None = None
    """A table (csv, tsv, jsonl, parquet) that names some or all of the image files, with their labels beside the
    names; images that it does not name have none. Names are looked for beside the table, in the folder of the images,
    under --data.root, and at last anywhere in the folder by the file's name alone, with its ending or without."""
    root: str | None = None
    """Where file names in tables begin, or several such folders joined by commas. Looked into after the folder of the
    table and, for labelled images, the folder that is pre-trained on."""
    image_column: str | None = None
    """Column with the images (bytes or file names), or several joined by commas that become the channels of one image
    (image,dna,ssc); in tar shards the file extension. Default: the only one that can hold images."""
    label_column: str | None = None
    """Column with the labels, or several joined by commas (0/1: several labels per image; numbers: several targets).
    Rows where it is empty have no label. Default: label, labels, class, target, category or the only ClassLabel column,
    else the only column that can hold labels; in tar shards cls."""
    target: Literal["class", "multilabel", "regression"] | None = None
    """What labels are; default: whole numbers and text are one class per image, lists are several labels per image,
    fractions are numbers to predict."""
    group: str | None = None
    """Column of what must not be torn apart by a made test split (patient, slide, scene); in folders and tar shards a
    regular expression on the file's path, whose first bracket is the group."""
    split: str | None = None
    """Split to train on, several joined by + (train+unlabeled); default: train, or everything where there is only
    one."""
    test_split: str | None = None
    """Split to judge on; default: test, else validation, else a fifth that is kept out of training."""
    stream: bool | None = None
    """Read parquet and tar shards in place, a block at a time, without converting them or holding them in memory; the
    order is then shuffled by blocks and within a buffer of some thousand images. A data set of the hub is then read
    where it is, parquet as it is needed; tar shards are read once from end to end first. Default: false; true for s3://
    and hf://."""
    cache_size: Annotated[float | None, Range(0), NO_EFFECT] = None
    """Gigabytes of the local disk for what was read from s3://, hf:// and streamed data sets of the hub; the least
    recently read goes first. It lies below SSL_VIT_CACHE, else in the user's cache. Default: 20."""
    max_pixels: Annotated[int | None, Range(1, ceiling=1 << 34), LATER] = None
    """Largest image in pixels, width times height times the pages of a TIFF; a larger one counts as unreadable before
    it is decoded, because a small file may hold one that takes all memory. Files may have 16 bytes for each, at least
    67 million. Most formats are limited to 179 million pixels anyway. Default: 134 million (134,217,728)."""


@dataclass(frozen=True)
class LoadingConfig:
    """How images are loaded; which ones is decided elsewhere."""

    cache: Annotated[Literal["auto", "ram", "device", "none"], NO_EFFECT] = "auto"
    """Where images are kept once they are decoded: ram (memory that all processes of a machine share), device (the
    GPU's own; on a CPU the same as ram) or none (they are decoded at every visit). auto: on the device where they fill
    less than a quarter of what is free there, else in RAM where they fill less than half. Windows are never kept, and
    what is streamed only in RAM or on the device where that is asked for."""
    crop_from: Literal["canvas", "file"] | None = None
    """What training's random crops are cut from: canvas (images are decoded once and whole, and may be kept) or file
    (every visit's crop is cut from the file by the processes that decode, at native scale, a large JPEG decoded at a
    part of its size; nothing is kept). Default: file for more than 64 GB of decoded images, else canvas; always canvas
    for windows, padded crops, images in memory and DINO."""
    workers: Annotated[int | None, Range(0, ceiling=1024), NO_EFFECT] = None
    """Processes that decode images; default: one fewer than the CPU cores per process, at most 16."""
    facts: Annotated[str | None, NO_EFFECT] = None
    """For --dry_run, which opens no images: how many there are and their median short side in pixels, 1281167x375 for
    ImageNet-1k; 60000x28x1 with channels where there are not 3."""


@dataclass(frozen=True)
class DataConfig(LoadingConfig, SourceConfig):
    """The pool of images to train on."""

    path: str = "digits"
    """A folder of images; parquet, arrow, csv or jsonl files or a folder of them; a folder of WebDataset tar shards;
    what datasets' save_to_disk wrote; a data set of the Hugging Face Hub (owner/name, owner/name:config); tar shards
    or parquet files in object storage (s3://BUCKET/FOLDER, hf://datasets/OWNER/NAME/FOLDER); or "digits"."""
    canvas: Annotated[int | None, Range(1, ceiling=1 << 14)] = None
    """Side in pixels of the square that images are decoded to (crops are still drawn in original coordinates).
    Default: images that share a size stay as they are up to twice the model's image size, or become a half, a quarter
    or an eighth of it; others a square between the model's image size and twice that, from their median short side."""
    window: Annotated[int | None, Range(1, ceiling=1 << 14)] = None
    """Train on random windows of this many pixels a side, at native scale, for very large images; evaluation then reads
    the central window. Files are decoded whole at every visit, up to --data.max_pixels."""


OnLeak = Literal["drop", "stop", "warn"]
"""What to do with images that show test images."""


@dataclass(frozen=True)
class LeakConfig:
    """What happens when test images are among those to train on."""

    on_leak: Annotated[OnLeak, SAME_RUN] = "drop"
    """When images to judge on, or copies of them, are among those to train on: drop leaves these out and lists them,
    stop refuses, warn goes on. Copies may be flipped, turned, inverted, cut, with a border, shifted, resized or encoded
    again. A verdict also looks for groups on both sides, which stop it unless this is warn."""


@dataclass(frozen=True)
class GuardConfig(LeakConfig):
    """What happens when test images are among those to pre-train on."""

    transductive: Annotated[bool, SAME_RUN] = False
    """Pre-train on the images to judge on, too, without their labels: a declared use of test images, which is recorded
    in the backbone. Images of a test split made here then stay in the pool."""


@dataclass(frozen=True)
class GuardedConfig(LeakConfig, DataConfig):
    """Labelled images to train on."""


@dataclass(frozen=True)
class PoolConfig(GuardConfig, DataConfig):
    """The pool of images to pre-train on."""


@dataclass(frozen=True)
class LabelledDataConfig(SourceConfig):
    """The labelled images to judge on; what is not given is as in --data where both name the same path."""

    path: str | None = None
    """As --data.path, but labelled; default: the images of the run itself."""
    on_leak: Annotated[OnLeak | None, SAME_RUN] = None
    """When images to judge on, or copies of them, are among the labelled ones to train on: drop leaves these out and
    lists them, stop refuses, warn goes on. Default: as --data.on_leak where a command has it, else drop."""


@dataclass(frozen=True)
class AugmentConfig:
    """Random variation of training images; every None is chosen from the image size and printed."""

    crop_scale: tuple[float, float] | None = None
    """Area of the random resized crop as a share of the image (least, most); [1, 1] takes the central square,
    which is all of a square image. Default: above 16 pixels [0.2, 1] for MAE and BEiT, [0.67, 1] for SimMIM, [0.35, 1]
    for distillation, [0.08, 1] for DIET and for probes on varied images; where training on labels sees a million
    images (labels x epochs) or more, [0.35, 1] (MAE's own fine-tuning crops [0.08, 1], for 100 epochs on 1.3 million
    images). Up to 16 pixels none, but [0.6, 1] for distillation and DIET."""
    crop: Literal["random_resized", "pad"] | None = None
    """How images are cropped: to a box of random area and shape, which is resized; or, as for CIFAR, the whole central
    square is padded by an eighth of its side with its own reflection and cut at a random place. Default:
    random_resized; on labels pad above 16 pixels, where training sees fewer than a million images (labels x epochs) or
    the preset trains long from scratch, unless an area is given or crops are cut from files."""
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    """How crops are resized, both antialiased; on a CPU bilinear is about twice as fast for large images."""
    crop_ratio: Annotated[tuple[float, float], Range(0.001, 1000.0)] = (3 / 4, 4 / 3)
    """Width over height of a crop (least, most), drawn on a logarithmic scale; refused where no boxes are cut."""
    flip: bool | None = None
    """Mirror half of the images left to right; default: only above 16 pixels."""
    policy: Literal["none", "3-augment", "jitter", "randaugment"] | None = None
    """Changes of intensity, colour and (RandAugment) geometry: RandAugment as MAE fine-tunes with (2 of 15 operations,
    each applied with a chance of one half), DeiT III's 3-Augment (one of grey, solarise, blur) with brightness and
    contrast jitter, or DIET's jitter (brightness, contrast, saturation and hue of three images in ten; a fifth become
    grey, a fifth are blurred). Default: randaugment when training on labels above 16 pixels sees a million images
    (labels x epochs) or more, jitter for DIET, else none. Operations that make no sense for the images (not RGB, not
    8-bit) are left out."""
    magnitude: Annotated[float, Range(0, 10)] = 9.0
    """RandAugment's mean magnitude, refused without it; every operation draws its own with deviation 0.5."""
    repeats: Annotated[int, Range(1, ceiling=1000)] = 1
    """How often an image occurs in a batch, each time varied anew (repeated augmentation; DeiT: 3). An epoch stays as
    many samples as there are images, so that it takes as many epochs to see all of them. With mixup or CutMix, which
    pair different images, at most half of the batch."""
    erasing: Annotated[float | None, Range(0, 1)] = None
    """Chance that a box of an image (2 % to a third of its area) becomes noise, only when training all weights on
    labels and for DIET. Default: MAE's 0.25 above 16 pixels, for DIET always, on labels where training sees a million
    images or more; else 0."""


@dataclass(frozen=True)
class ResolvedAugment(AugmentConfig, Resolved):
    """Variation of training images without open values."""

    crop_scale: tuple[float, float] = OPEN
    crop: Literal["random_resized", "pad"] = "random_resized"
    flip: bool = OPEN
    policy: Literal["none", "3-augment", "jitter", "randaugment"] = OPEN
    erasing: float = OPEN


@dataclass(frozen=True)
class CropsConfig:
    """Multi-crop and its colour changes (Caron et al. 2021, section 3.1; numbers from the released code).

    Two global crops and several smaller local ones; what makes no sense for the images (hue, saturation and grey unless
    they are 8-bit RGB, solarising unless they have 8 bits) is left out.
    """

    global_scale: Annotated[tuple[float, float] | None, Range(1e-6, 1)] = None
    """Area of a global crop as a share of the image (least, most); [1, 1] takes the central square. Default: the
    preset's; the paper's [0.4, 1]."""
    local_scale: Annotated[tuple[float, float] | None, Range(1e-6, 1)] = None
    """Area of a local crop as a share of the image (least, most). Default: the preset's; the paper's [0.05, 0.4]."""
    local_crops: Annotated[int | None, Range(0, ceiling=1000)] = None
    """Local crops per image, 0 for none. Default: the preset's; the paper's 8."""
    local_size: Annotated[int | None, Range(1, ceiling=1 << 14)] = None
    """Side of a local crop in pixels, in whole patches. Default: the preset's; the paper's 96, of an input of 224."""
    ratio: Annotated[tuple[float, float], Range(0.001, 1000.0)] = (3 / 4, 4 / 3)
    """Width over height of a crop (least, most), drawn on a logarithmic scale; the paper's [3/4, 4/3]."""
    flip: bool | None = None
    """Mirror half of the crops left to right. Default: the preset's; the paper's true."""
    jitter: Annotated[float | None, Range(0, 5)] = None
    """Strength of the colour jitter, 0 for off: brightness and contrast change by up to 0.4 times this, saturation by
    0.2, hue by 0.1 turns, in a random order. Default: the preset's; the paper's 1."""
    jitter_chance: Annotated[float, Range(0, 1)] = 0.8
    """Chance that a crop is jittered; the paper's 0.8."""
    grey: Annotated[float, Range(0, 1)] = 0.2
    """Chance that a crop loses its colours; the paper's 0.2."""
    blur: Annotated[tuple[float, float, float] | None, Range(0, 1)] = None
    """Chances of a Gaussian blur: first global, second global and local crops. Default: the preset's; the paper's
    [1, 0.1, 0.5]."""
    blur_sigma: Annotated[tuple[float, float] | None, Range(0.001, 100)] = None
    """Deviation of the blur in pixels (least, most). Default: the preset's; the paper's [0.1, 2]."""
    solarise: Annotated[float | None, Range(0, 1)] = None
    """Chance that the second global crop is solarised: what is brighter than the middle of the range is inverted.
    Default: the preset's; the paper's 0.2."""
    global_size: Annotated[int | None, Range(1, ceiling=1 << 14)] = None
    """Side of a global crop in pixels, in whole patches: a smaller one than the network's input makes training shorter,
    and images are judged at the input's size all the same. Default: the preset's, which is mostly the input, as the
    paper's is."""


@dataclass(frozen=True)
class ResolvedCrops(CropsConfig, Resolved):
    """Multi-crop without open values."""

    global_scale: tuple[float, float] = OPEN
    local_scale: tuple[float, float] = OPEN
    local_crops: int = OPEN
    local_size: int = OPEN
    flip: bool = OPEN
    jitter: float = OPEN
    blur: tuple[float, float, float] = OPEN
    blur_sigma: tuple[float, float] = OPEN
    solarise: float = OPEN


def check_crops(cfg: CropsConfig) -> None:
    """Refuses (UserError) ranges that are the wrong way round and crops of no area; what is open is no mistake."""
    for name in ("global_scale", "local_scale", "ratio", "blur_sigma"):
        pair = getattr(cfg, name)
        if pair is not None and not 0 < pair[0] <= pair[1]:
            raise UserError(f"--crops.{name} {list(pair)} must be two positive numbers, least first")
