"""Options of the verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ssl_vit.core.errors import UserError, did_you_mean

STARTS = ("scratch", "mae", "dino", "public", "random", "pixels", "cnn")
"""What weights begin with: the labelled baseline, MAE, DINO, public weights, random ones that stay frozen, none at all
(raw pixels), and a ResNet from scratch."""
PRETRAINED = ("mae", "dino", "public")
SHARES = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0)
DIGITS = (10, 20, 50, 100)


@dataclass(frozen=True)
class VerdictConfig:
    """What is compared, over how many labels, how often, and how long it may take."""

    methods: str | None = None
    """What takes part, joined by commas: scratch (always there), mae, dino, public, random, pixels, cnn; default: all
    that can be had here (a short budget leaves dino and cnn out; those named here stay, for shorter training)."""
    budget: str | None = None
    """Time the whole verdict may take, such as 90s, 10m, 2h or 1.5d: the plan is cut to it, and says what was cut.
    Default: 10m for digits, else as long as the plan takes (printed before anything is trained)."""
    shares: tuple[float, ...] | None = None
    """Per cent of the training labels to judge at; default: 1, 2, 5, 10, 25, 50 and 100 (digits: 10, 20, 50 and 100
    labels, and all). All labels are always among them."""
    labels: tuple[int, ...] | None = None
    """Numbers of labels to judge at, instead of shares."""
    per_class: tuple[int, ...] | None = None
    """Numbers of labels per class to judge at, instead of shares."""
    seeds: int = 3
    """Pre-training runs of each method; with fewer than 3 the verdict is conditional on them, and says so."""
    probe_draws: int = 10
    """Draws of labels for k-NN and linear probes."""
    train_draws: int = 5
    """Draws of labels where all weights are trained."""
    matched_draws: int = 5
    """Draws for the baseline at the FLOPs of pre-training and fine-tuning together; 0 leaves it out, and then no gain
    is claimed."""
    trials: int = 6
    """Tuning trials of every method that trains all weights, at each number of labels where it is tuned."""
    length: float = 1.0
    """Length of training on labels, as a factor of the usual one (100 epochs, at least 1,000 steps); trials vary it by
    a factor of two each way. Below 0.5 no method has RandAugment, erasing, mixup or CutMix."""
    pretraining: float = 1.0
    """Length of pre-training, as a factor of the preset's."""
    backbones: str | None = None
    """Finished pre-training runs to judge instead of making new ones, joined by commas: of recipes/mae.py or
    recipes/dino.py on the same pool, several seeds of each where they are there."""
    mae: str = ""
    """Further options for recipes/mae.py, as typed: "--optim.base_lr 4e-3 --fit.batch_size 64". --fit.epochs is the
    whole length here, which --verdict.pretraining and a budget's cuts are factors of; what is the same for all methods
    (--data, --model, --eval, --seed, --preset) is given to the verdict itself."""
    dino: str = ""
    """Further options for recipes/dino.py, as typed."""
    public: str | None = None
    """Public weights: the name of a timm model with a pretrained tag, or a folder that timm saved. Default: DINO's
    ViT-S/16 for images of at least 64 pixels, where it can be downloaded or is in the cache."""
    cnn: str | None = None
    """The timm model that stands for CNNs; default: the ResNet with the number of parameters nearest to the ViT's."""
    jobs: int | None = None
    """Runs at the same time on a CPU, each in a process of its own with one thread; 0 runs one after the other in this
    one, as a GPU and several processes do. Default: one per core."""
    plan_only: bool = False
    """Measure a few steps, print the plan, and stop."""


def seconds_of(budget: str) -> float:
    """A length of time such as 90s, 10m, 2h or 1.5d in seconds.

    Raises:
        UserError: For anything else.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)", budget.strip())
    if not found or not float(found[1]):
        raise UserError(f"--verdict.budget {budget} is no length of time; write 90s, 10m, 2h or 1.5d")
    return float(found[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}[found[2]]


def check_verdict(cfg: VerdictConfig) -> None:
    """Refuses what no images can make right, before anything is imported or opened.

    Raises:
        UserError: Naming the option.
    """
    methods_of(cfg.methods)
    if cfg.budget is not None:
        seconds_of(cfg.budget)
    _one_way(cfg)


def _one_way(cfg: VerdictConfig) -> None:
    given = [name for name in ("shares", "labels", "per_class") if getattr(cfg, name) is not None]
    if len(given) > 1:
        raise UserError(f"--verdict.{given[0]} and --verdict.{given[1]} both say how many labels; give one of them")


def methods_of(given: str | None) -> tuple[str, ...]:
    """``--verdict.methods`` in the usual order, the baseline always among them.

    Raises:
        UserError: For a name that is none.
    """
    if given is None:
        return STARTS
    words = [word.strip() for word in given.split(",") if word.strip()]
    for word in words:
        if word not in STARTS:
            raise UserError(f"--verdict.methods {word} is none of {', '.join(STARTS)}{did_you_mean(word, STARTS)}")
    return tuple(start for start in STARTS if start in ("scratch", *words))


def label_counts(
    cfg: VerdictConfig, labels: int, classes: int | None, digits: bool
) -> tuple[tuple[int, ...], list[str]]:
    """The numbers of labels to judge at, ascending, all of them at the end.

    Args:
        cfg: At most one of shares, labels and per_class is given.
        labels: All training labels.
        classes: How many classes the training labels have; None for other kinds of labels.
        digits: Whether these are scikit-learn's digits.

    Returns:
        The numbers, and what was left out, in words.

    Raises:
        UserError: For several of the three options, or numbers that do not exist.
    """
    _one_way(cfg)
    if cfg.per_class is not None:
        if classes is None:
            raise UserError("--verdict.per_class needs one class per image; give --verdict.shares or --verdict.labels")
        asked = {f"{k} per class": k * classes for k in cfg.per_class}
    elif cfg.labels is not None:
        asked = {f"{n:,} labels": n for n in cfg.labels}
    elif digits and cfg.shares is None:
        asked = {f"{n} labels": n for n in DIGITS}
    else:
        shares = SHARES if cfg.shares is None else cfg.shares
        if not all(0 < share <= 100 for share in shares):
            raise UserError(f"--verdict.shares {list(shares)} are per cent, each above 0 and at most 100")
        asked = {f"{share:g} %": round(labels * share / 100) for share in shares}
    too_many = [words for words, count in asked.items() if count > labels]
    if too_many:
        raise UserError(f"{too_many[0]} are asked for, but there are {labels:,} training labels")
    least = max(2, classes or 2)
    notes = [
        f"{words} of {labels:,} labels would be {count}, fewer than one for each of the {classes} classes; left out"
        if classes else f"{words} of {labels:,} labels would be {count}; left out"
        for words, count in asked.items() if count < least
    ]  # fmt: skip
    return tuple(sorted({count for count in asked.values() if count >= least} | {labels})), notes
