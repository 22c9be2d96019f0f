"""Options of the verdict."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from ssl_vit.configs import FitConfig, JudgedMetricConfig, ModelConfig, PoolConfig, PretrainingRecipe, RunConfig
from ssl_vit.configs.facts import SAME_RUN, Effect, Range
from ssl_vit.configs.networks import FAMILIES, known_as
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.engines.elsewhere import Executor, asked_of, check_executor
from ssl_vit.methods import METHODS, Method
from ssl_vit.methods.starts import BASELINE, PUBLIC, VIT, starts

SHARES = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0)
DIGITS = (10, 20, 50, 100)


@dataclass(frozen=True)
class VerdictConfig:
    """What is compared, over how many labels, how often, and how long it may take."""

    methods: str | None = None
    """What takes part, joined by commas: scratch (always there), any method of pre-training by the name of its
    command, public, random, pixels, cnn. Default: all that pays within the budget; what is named here stays, for
    shorter training."""
    networks: str | None = None
    """Networks that take part, joined by commas, each from scratch and with every method that it can carry: vit
    (always there, the network of --model), cnn (--verdict.cnn), hybrid or another family that --preset lists, in the
    ViT's size, or any timm model. Results call them cnn, and mae@cnn with a method. Default: vit and cnn, on which
    LeJEPA takes part where the budget allows it; those named here stay."""
    budget: Annotated[str | None, SAME_RUN] = None
    """Time the whole verdict may take, such as 90s, 10m, 2h or 1.5d: network and input, and what the plan adds, are
    chosen by it. Default: 8m for digits, 30m on other CPUs, else as long as the plan takes (printed before anything is
    trained)."""
    shares: tuple[float, ...] | None = None
    """Per cent of the training labels to judge at; default: 1, 2, 5, 10, 25, 50 and 100 (digits: 10, 20, 50 and 100
    labels, and all). All labels are always among them."""
    labels: Annotated[tuple[int, ...] | None, Range(1)] = None
    """Numbers of labels to judge at, instead of shares."""
    per_class: Annotated[tuple[int, ...] | None, Range(1)] = None
    """Numbers of labels per class to judge at, instead of shares."""
    seeds: Annotated[int, Range(1, ceiling=1000)] = 3
    """Pre-training runs of each method; with fewer than 3 the verdict is conditional on them, and says so."""
    probe_draws: Annotated[int, Range(1, ceiling=10_000)] = 10
    """Draws of labels for k-NN and linear probes."""
    train_draws: Annotated[int, Range(1, ceiling=10_000)] = 10
    """Draws of labels where all weights are trained, at most: from the third on, what can no longer change the advice
    is trained on no more of them."""
    matched_draws: Annotated[int, Range(0, ceiling=10_000)] = 5
    """Draws for the baseline at the FLOPs of pre-training and fine-tuning together; 0 leaves it out, and then no gain
    is claimed."""
    trials: Annotated[int, Range(1, ceiling=10_000)] = 6
    """Tuning trials of every method that trains all weights, at each number of labels where it is tuned."""
    length: Annotated[float, Range(1e-6)] = 1.0
    """Length of training on labels, as a factor of the usual one (100 epochs, at least 1,000 steps); trials vary it by
    a factor of two each way. Where it sees less than a million images, no method has RandAugment, erasing or mixing."""
    pretraining: Annotated[float, Range(1e-6)] = 1.0
    """Length of pre-training, as a factor of the preset's."""
    backbones: str | None = None
    """Finished pre-training runs to judge instead of making new ones, joined by commas: of any method on the same pool,
    several seeds of each where they are there."""
    public: str | None = None
    """Public weights, as --backbone takes them: a name of timm's with its tag, a folder, or their authors' file.
    Default: DINO's ViT-S/16 for images of at least 64 pixels, where it can be downloaded or is in the cache."""
    cnn: str | None = None
    """The timm model that stands for CNNs; default: the ResNet with the number of parameters nearest to the ViT's. With
    preset px32-cpu it is resnet_mini, or resnet_micro beside a ViT of less than 500,000 parameters."""
    jobs: Annotated[int | None, Range(0, ceiling=1024), SAME_RUN] = None
    """Runs at the same time on a CPU, each in a process of its own with one thread; 0 runs one after the other in this
    one, as a GPU and several processes do. Default: one per core; with submitit to be given, the most jobs that SLURM
    may run at once; with ray as many as there is room for."""
    executor: Annotated[Executor, SAME_RUN] = "local"
    """Where runs go: processes of this machine, jobs of SLURM by submitit, or tasks of Ray; a GPU there is used. Every
    machine must see the same folders."""
    job: Annotated[tuple[str, ...], SAME_RUN] = ()
    """What every run asks for: of submitit such as [timeout_min=120,gpus_per_node=1,slurm_partition=gpu] (cluster=local
    for processes in the manner of SLURM), of Ray such as [num_cpus=4,num_gpus=1]."""
    plan_only: Annotated[bool, SAME_RUN] = False
    """Measure a few steps, print the plan, and stop."""


@dataclass(frozen=True)
class Comparison:
    """Options of eval/verdict.py but for those of single methods, of which each is a group of its name.

    Those stand for what is typed for the method's own recipe: ``--simmim.mask_ratio`` is the same in both,
    ``--simmim.optim.base_lr`` is ``--optim.base_lr`` there.
    """

    BARE: ClassVar[tuple[str, ...]] = ("data.path", "eval.data.path")
    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    """Seed of the first pre-training run; the others follow. Draws of labels are counted from 0 for every seed."""
    preset: str | None = None
    """What fills the options left open: digits, px32, px32-cpu, px64, px96, px128, px224; default: chosen by the
    images' size, and px32-cpu instead of px32 on a CPU. Without a value: prints all of them."""
    run: RunConfig = field(default_factory=RunConfig)
    data: PoolConfig = field(default_factory=PoolConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    eval: JudgedMetricConfig = field(default_factory=JudgedMetricConfig)
    verdict: VerdictConfig = field(default_factory=VerdictConfig)

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes make the class of the same table, and of it the same options."""
        return _remade, ({name: vars(v) if name in METHODS else v for name, v in vars(self).items()},)

    def of(self, method: Method) -> PretrainingRecipe:
        """A method's recipe with its options given here, and defaults in the place of all others."""
        given, own = vars(getattr(self, method.name)), type(getattr(method.recipe(), method.name))
        names = {f.name for f in fields(own)}
        groups = {name: value for name, value in given.items() if name not in names}
        return method.recipe(**groups, **{method.name: own(**{name: given[name] for name in names})})


def verdict_recipe() -> type[Comparison]:
    """The whole option tree of eval/verdict.py, with a group for every method of the table."""
    return _recipe(tuple(METHODS.values()))


@lru_cache(maxsize=4)
def _recipe(methods: tuple[Method, ...]) -> type[Comparison]:
    groups: list[tuple[str, Any, Any]] = []
    shared = {f.name for f in fields(Comparison)}
    for method in methods:
        usual = method.recipe()
        own = type(getattr(usual, method.name))
        left = {f.name for f in fields(usual)} - {*shared, "dry_run", "continued", method.name}
        further = {f.name: getattr(usual, f.name) for f in fields(usual) if f.name in left}
        inner = [(name, type(value), field(default=value)) for name, value in further.items()]
        options = make_dataclass(f"{own.__name__}InVerdict", inner, bases=(own,), frozen=True)
        options.__doc__ = (
            f"{method.title} ({method.paper}): options of its recipe, where they are not the same for all methods. "
            f"--{method.name}.fit.epochs is the whole length, which --verdict.pretraining and a budget's cuts are "
            "factors of."
        )
        groups.append((method.name, Annotated[options, Effect()], field(default=options())))
    made = make_dataclass("VerdictRecipe", groups, bases=(Comparison,), frozen=True)
    made.__doc__ = "Options of eval/verdict.py."
    return made


def _remade(values: dict[str, Any]) -> Comparison:
    usual = verdict_recipe()()
    return replace(usual, **{k: replace(getattr(usual, k), **v) if k in METHODS else v for k, v in values.items()})


def seconds_of(budget: str, option: str = "--verdict.budget") -> float:
    """A length of time such as 90s, 10m, 2h or 1.5d in seconds; ``option`` is what it was given as.

    Raises:
        UserError: For anything else.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)", budget.strip())
    if not found or not float(found[1]):
        raise UserError(f"{option} {budget} is no length of time; write 90s, 10m, 2h or 1.5d")
    return float(found[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}[found[2]]


def check_verdict(recipe: Comparison) -> None:
    """Refuses what no images can make right, before anything is imported or opened.

    Raises:
        UserError: Naming the option.
    """
    cfg = recipe.verdict
    starts_of(cfg)
    if cfg.budget is not None:
        seconds_of(cfg.budget)
    check_executor(cfg.executor, cfg.job, "verdict.")
    if cfg.executor != "local" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(f"--verdict.executor {cfg.executor} starts processes by itself; write --processes 1")
    for name in ("nodes", "tasks_per_node"):
        if asked_of(cfg.job).get(name, 1) != 1:
            raise UserError(
                f"--verdict.job {name}: every run of a verdict is one process, and uses one GPU; leave it out"
            )
    if cfg.executor == "submitit" and not cfg.jobs:
        raise UserError("--verdict.executor submitit needs --verdict.jobs N: how many jobs may run at once, for a plan")
    if recipe.run.log_with is not None:
        raise UserError("--run.log_with: a verdict trains many runs and tracks none; give it to single runs")
    for name in filter(None, map(str.strip, (cfg.backbones or "").split(","))):
        if not Path(name).expanduser().exists():
            raise UserError(
                f"--verdict.backbones {name} does not exist; give the folders of finished pre-training runs"
            )
    given = [name for name in ("shares", "labels", "per_class") if getattr(cfg, name) is not None]
    if len(given) > 1:
        raise UserError(f"--verdict.{given[0]} and --verdict.{given[1]} both say how many labels; give one of them")
    for name in METHODS:
        fit: FitConfig = getattr(recipe, name).fit
        if fit.min_steps is not None:
            raise UserError(f"--{name}.fit.min_steps: give the length of pre-training as --{name}.fit.epochs instead")


def methods_of(given: str | None) -> tuple[str, ...]:
    """``--verdict.methods`` in the usual order, the baseline always among them.

    Raises:
        UserError: For a name that is none.
    """
    known = starts()
    if given is None:
        return tuple(name for name, start in known.items() if start.unasked)
    words = [word.strip() for word in given.split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise UserError(f"--verdict.methods {word} is none of {', '.join(known)}{did_you_mean(word, known)}")
    return tuple(name for name in known if name in (BASELINE, *words))


def networks_of(cfg: VerdictConfig) -> tuple[str, ...]:
    """``--verdict.networks`` beside the Vision Transformer; a CNN where nobody named networks or methods."""
    if cfg.networks is None:
        return ("cnn",) if "cnn" in methods_of(cfg.methods) else ()
    return tuple(dict.fromkeys(word for word in map(str.strip, cfg.networks.split(",")) if word not in ("", VIT)))


def starts_of(cfg: VerdictConfig) -> dict[str, bool]:
    """What takes part, in the order of reports, and whether it was asked for: then no budget leaves it out.

    What a network cannot carry is still among it.

    Raises:
        UserError: For a name that is none.
    """
    words, asked, networks = methods_of(cfg.methods), cfg.methods is not None, networks_of(cfg)
    for name in (*METHODS, PUBLIC, BASELINE, "pixels", "random"):
        if name in networks:
            raise UserError(f"--verdict.networks {name} is no network; methods and features are --verdict.methods")
    found = {word: asked for word in words if word in METHODS}
    for network in (*networks, *([PUBLIC] if PUBLIC in words else [])):
        own = [w for w in words if w in METHODS] if asked else [m.name for m in METHODS.values() if m.unasked_elsewhere]
        found |= {f"{method}@{network}": asked and network != PUBLIC for method in own}
    found |= {word: asked or word in (BASELINE, "pixels", "random") for word in words if word not in (*found, "cnn")}
    found |= dict.fromkeys(networks, asked or cfg.networks is not None)
    places = {name: place for place, name in enumerate(starts())}
    return dict(sorted(found.items(), key=lambda item: places.get(item[0], len(METHODS) - 0.5)))


def family_member(name: str, parameters: int) -> str:
    """The network of a family whose size is nearer to a number of parameters; other names are as they are."""
    member = known_as(f"{name}_{'micro' if parameters < _MICRO else 'mini'}")
    return member if member in FAMILIES else name


_MICRO = 500_000
"""Parameters between those of micro and of mini."""


def label_counts(
    cfg: VerdictConfig, labels: int, classes: int | None, digits: bool
) -> tuple[tuple[int, ...], list[str]]:
    """The numbers of labels to judge at, ascending, all of them at the end.

    Returns:
        The numbers, and what was left out, in words.

    Raises:
        UserError: For numbers that do not exist.
    """
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
        option, most = ("labels", labels) if cfg.per_class is None else ("per_class", labels // (classes or 1))
        raise UserError(
            f"--verdict.{option}: {too_many[0]} are asked for, but there are {labels:,} training labels; give at most "
            f"{most:,}"
        )
    least, why = max(2, classes or 2), f", fewer than one for each of the {classes} classes" if classes else ""
    few = {words: count for words, count in asked.items() if count < least}
    notes = [f"{words} of {labels:,} labels would be {count}{why}; left out" for words, count in few.items()]
    return tuple(sorted({count for count in asked.values() if count >= least} | {labels})), notes
