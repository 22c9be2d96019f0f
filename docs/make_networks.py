"""Writes what goes with what from the tables of networks and methods: ``python docs/make_networks.py``.

docs/networks.md has all of it, README.md a summary between two marks.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import torch

from ssl_vit.configs import ModelConfig
from ssl_vit.configs.networks import FAMILIES, NETWORKS, ModelFacts, meets, resolve_model, wanted
from ssl_vit.methods import LABELLED, METHODS
from ssl_vit.models.build import build_backbone, model_facts
from ssl_vit.models.families import ours
from ssl_vit.training.metering import forward_flops

PAGE = Path(__file__).with_name("networks.md")
README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- networks: made by docs/make_networks.py -->\n", "<!-- networks: end -->\n"
SIDE, PRESET = 32, "px32"
HEAD = """# Networks and methods

<!-- made by docs/make_networks.py; edit ssl_vit/configs/networks.py and ssl_vit/methods instead -->

What goes with what, and why the rest does not. A row stands for its whole family: `cct_mini`, `cct_7_3x1_32` and
`cct_14_7x2_224` go with what `cct_micro` goes with. `--model.name` takes all of these names.

"""
MIDDLE = """
Other models of timm's have a row here, too. Plain Vision Transformers (`vit_small_patch16_224`,
`deit3_small_patch16_224`) are like `vit_micro` and go with everything. What is of no family above and makes one vector
of an image is like `swin_micro`: convolutions, windows and stages (`resnet50`, `swin_base_patch4_window7_224`) for the
reason below, others (`cait_s24_224`, `eva02_tiny_patch14_224`, `mixer_b16_224`, `xcit_tiny_12_p16_224`,
`tnt_s_legacy_patch16_224`) because their tokens are not made here. Training on labels takes every network; so does
every evaluation.

Why not:

"""
SIZES = f"""
## Sizes for small images

Parameters of a network for RGB images of {SIDE} pixels, without a classifier, and millions of floating-point operations
of reading one image: products and convolutions, attention among them, a multiplication and an addition being two. Most
of them come from timm; those with "own" are the project's, and `import ssl_vit.families` comes before plain timm loads
an export of one. Sizes are chosen so that parameters are within a fifth of those of the Vision Transformer of the same
size, and operations within a quarter of its. `relpos_micro` and `distilled_micro` are older names of `relative_micro`
and `deit_micro`.

"""


@cache
def page() -> str:
    """The page as Markdown: who goes with whom, reasons, and the networks of small images."""
    facts = {name: _facts(name) for name in shown()}
    notes: list[str] = []
    rows = [_cells(name, found, notes) for name, found in facts.items()]
    columns = ["network", *METHODS, ", ".join(LABELLED)]
    return "".join([
        HEAD, _table([columns, ["---"] + [":---:"] * (len(columns) - 1), *rows]), MIDDLE,
        "".join(f"{i}. {note}\n" for i, note in enumerate(notes, 1)), SIZES, _table(_sizes()),
    ])  # fmt: skip


def shown() -> list[str]:
    """The smallest network of every family, the Vision Transformer first."""
    return [next(iter(NETWORKS)), *(name for name in FAMILIES if name.endswith("_micro"))]


def summary() -> str:
    """The same in short: networks with the same answers share a row, methods with the same answers a column."""
    answers: dict[tuple[str, ...], list[str]] = {}
    for name in shown():
        facts = _facts(name)
        lacks = re.sub(r", an? \w+,|, so .*", "", _lacks(facts)).replace("patch", "[patch](docs/glossary.md#patch)")
        cells = tuple("yes" if meets(facts.offers, method.needs) else f"no: {lacks}" for method in METHODS.values())
        answers.setdefault(cells, []).append(f"`{name.removesuffix('_micro')}`")
    columns: dict[tuple[str, ...], list[str]] = {}
    for i, method in enumerate(METHODS):
        columns.setdefault(tuple(cells[i] for cells in answers), []).append(f"`{method}`")
    columns.setdefault(("yes",) * len(answers), []).append("training on labels")
    rows = [[", ".join(names), *(cells[row] for cells in columns)] for row, names in enumerate(answers.values())]
    heads = ["network", *(", ".join(names) for names in columns.values())]
    return _table([heads, ["---"] * len(heads), *rows])


def readme() -> str:
    """README.md with the summary between its marks."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}{summary()}{END}{rest.partition(END)[2]}"


@cache
def _facts(name: str) -> ModelFacts:
    return model_facts(*wanted(ModelConfig(name)))


def _lacks(facts: ModelFacts) -> str:
    """What is in the way of hiding patches, without the name of the network."""
    return re.sub(r"^it is an? \w+, whose", "its", facts.lacks)


def _cells(name: str, facts: ModelFacts, notes: list[str]) -> list[str]:
    cells: list[str] = []
    for method in METHODS.values():
        if meets(facts.offers, method.needs):
            cells.append("yes")
            continue
        reason = f"The method leaves out or replaces patches one by one, and the network cannot: {_lacks(facts)}."
        if reason not in notes:
            notes.append(reason)
        cells.append(f"no ({notes.index(reason) + 1})")
    return [f"`{name}`", *cells, "yes"]


def _sizes() -> list[list[str]]:
    rows = [["network", "parameters", "MFLOPs", "timm's name", "what it is"], ["---", "---:", "---:", "---", "---"]]
    plain = [(n.name, n.timm_name, n.source) for n in NETWORKS.values()]
    for name, timm_name, source in [*plain[:2], *((f.name, f.timm_name, f.source) for f in FAMILIES.values())]:
        own = " (own)" if ours(timm_name) else ""
        rows.append([f"`{name}`", *_costs(name), f"`{timm_name}`{own}", source])
    return rows


def _costs(name: str) -> tuple[str, str]:
    """Parameters, and millions of operations of a forward pass."""
    facts = _facts(name)
    with torch.device("meta"):
        cfg = resolve_model(ModelConfig(name), SIDE, facts, PRESET)
        backbone = build_backbone(cfg, 3).eval()
    return f"{sum(p.numel() for p in backbone.parameters()):,}", f"{forward_flops(backbone) / 1e6:.0f}"


def _table(rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")
