"""docs/networks.md: what goes with what, as the tables have it."""

from __future__ import annotations

import re

from ssl_vit.configs import ModelConfig
from ssl_vit.configs.networks import FAMILIES, NETWORKS, meets, wanted
from ssl_vit.methods import METHODS
from ssl_vit.models.build import model_facts

from made_pages import script_of

make_networks = script_of("make_networks")


def test_the_page_is_what_the_tables_say() -> None:
    assert make_networks.PAGE.read_text(encoding="utf-8") == make_networks.page(), "run python docs/make_networks.py"


def test_the_readme_says_the_same_in_short() -> None:
    assert make_networks.README.read_text(encoding="utf-8") == make_networks.readme(), (
        "run python docs/make_networks.py"
    )
    heads, _, *rows = (line.strip("| ").split(" | ") for line in make_networks.summary().splitlines())
    said = {
        (name, method): cell
        for names, *cells in rows
        for name in re.findall(r"`(\w+)`", names)
        for methods, cell in zip(heads[1:], cells, strict=True)
        for method in re.findall(r"`(\w+)`", methods)
    }
    assert len(said) == len(make_networks.shown()) * len(METHODS)
    for name in make_networks.shown():
        offers = model_facts(*wanted(ModelConfig(name))).offers
        for method in METHODS.values():
            cell = said[name.removesuffix("_micro"), method.name]
            assert cell == "yes" if meets(offers, method.needs) else cell.startswith("no: its ")


def test_what_the_page_says_of_other_models_of_timms() -> None:
    words = "Other models of timm" + make_networks.page().partition("Other models of timm")[2].partition("Why not")[0]
    plain, rest = words.split("What is of no family")
    tied, others = rest.split("reason below")
    pattern = r"`(\w+_\w*\d{3}|resnet50)`"
    for text, offers, why in (
        (plain, "dropping", ""), (tied, "pooled", "tie neighbouring"), (others, "pooled", "tokens are not made here")
    ):  # fmt: skip
        names = re.findall(pattern, text)
        assert len(names) >= 2
        for name in names:
            facts = model_facts(name)
            assert facts.offers == offers and why in facts.lacks, name
    assert model_facts("eva02_tiny_patch14_224").lacks.startswith("it is an Eva, whose tokens")


def test_every_pair_is_answered_and_every_no_has_its_reason() -> None:
    text = make_networks.page()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    answers = {row[0].strip("`"): row[1:-1] for row in rows if len(row) == len(METHODS) + 2}
    assert set(answers) == {next(iter(NETWORKS)), *(name for name in FAMILIES if name.endswith("_micro"))}
    reasons = re.findall(r"^(\d+)\. (.+)$", text, re.MULTILINE)
    for cells in answers.values():
        assert len(cells) == len(METHODS)
        assert all(cell == "yes" or re.fullmatch(r"no \((\d+)\)", cell)[1] in dict(reasons) for cell in cells)  # pyright: ignore[reportOptionalSubscript]
    hiding = [i for i, method in enumerate(METHODS.values()) if method.needs == "dropping"]
    for name in ("vit_micro", "beit_micro", "relative_micro", "deit_micro"):
        assert set(answers[name]) == {"yes"}
    for name in ("hybrid_micro", "cct_micro", "resnet_micro"):
        assert [i for i, cell in enumerate(answers[name]) if cell != "yes"] == hiding
    assert answers["cct_micro"] == answers["resnet_micro"] != answers["hybrid_micro"]
