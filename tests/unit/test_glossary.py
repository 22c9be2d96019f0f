"""House words: every one that stands in README, report or ``--help`` is explained there, at its first place or before."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from ssl_vit.configs.cli import _parser
from ssl_vit.core.glossary import PATTERNS, WORDS, Word, words_in
from ssl_vit.core.started import module_of, options_of, scripts
from ssl_vit.methods import known_recipes
from ssl_vit.report.findings.records import read_verdict
from ssl_vit.report.page.content import build
from ssl_vit.report.page.render import _UNREAD, html, markdown
from ssl_vit.verdict.options import verdict_recipe

from made_report import Seen, small

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RECIPES = (*known_recipes(), verdict_recipe())
BY_HAND = {
    "pre-training": "pre-trains a network on images without labels",
    "baseline": "the same network\ntrained from scratch on the labels",
    "raw pixels": "against raw pixels",
    "MAE": "masked autoencoder (MAE)",
    "run": "RUN is the folder that pre-training names at its end",
    "verdict": "One command pre-trains, tunes every",
    "group": "groups (patient, slide) that stay together",
}
"""Words that the README explains in its own sentences."""
KNOWN = frozenset(
    [
        "AMD",
        "AMX",
        "AROUND",
        "AUROC",
        "Ampere",
        "AdamW",
        "Adam",
        "Any",
        "Apple",
        "AVIF",
        "BLAS",
        "BMP",
        "CMYK",
        "CPU",
        "CPUs",
        "CSV",
        "CUDA",
        "CutMix",
        "CIFAR",
        "ClassLabel",
        "Class",
        "DeiT",
        "EPYC",
        "EXIF",
        "FlexiViT",
        "Fair-baseline",
        "Free",
        "GB",
        "GELU",
        "GPU",
        "GPUs",
        "Gaussian",
        "HTML",
        "Hub",
        "Hugging",
        "Face",
        "IO",
        "Intel",
        "I/O",
        "ID",
        "JPEG",
        "JSON",
        "k-means",
        "KB",
        "LARS",
        "LayerNorm",
        "Latin",
        "LeCun",
        "Linux",
        "MB",
        "MLflow",
        "MPS",
        "Mac",
        "NaN",
        "NVIDIA",
        "None",
        "ONNX",
        "OOM",
        "OpenMP",
        "PCA",
        "PDF",
        "PIL",
        "PNG",
        "Pillow",
        "Python",
        "PyTorch",
        "RAM",
        "RandAugment",
        "ResNet",
        "RGB",
        "RGBA",
        "SGD",
        "SIGReg",
        "SIGTERM",
        "SLURM",
        "SVG",
        "SwAV",
        "Sinkhorn-Knopp",
        "Sinkhorn",
        "TB",
        "TIFF",
        "TorchScript",
        "UMAP",
        "URL",
        "US",
        "UTF",
        "W&B",
        "WebDataset",
        "WebP",
        "YAML",
        "ZIP",
        "aug-mae",
        "aug-dino",
        "arXiv",
        "cross-validation",
        "device-days",
        "learning-rate",
        "scikit-learn",
        "self-distillation",
        "sine-cosine",
        "ssl-vit",
        "t-SNE",
        "two-sided",
        "III",
        "Xie",
        "Torch",
        "Prophase",
        "Mitosis",
    ]
)
"""Names that stand in texts and are no words of this house: of formats, machines, people and libraries, and optimisers
and operations that are named to whoever asks for them."""
_CODE = re.compile(r"```.*?```|`[^`]*`|!\[[^\]]*\]\([^)]*\)|https?://\S+", re.DOTALL)


def helped(recipe: type) -> str:
    return _parser(recipe, "").format_help()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return html(build(read_verdict(small(tmp_path_factory.mktemp("verdict"), classes=("a", "b", "c")))))


def test_no_word_is_explained_twice_or_without_need() -> None:
    names = [word.name.lower() for word in WORDS]
    assert names == sorted(set(names))
    everywhere = "\n".join([README, *(p.read_text(encoding="utf-8") for p in (ROOT / "docs").glob("[!g]*.md"))])
    everywhere += "\n".join(map(helped, RECIPES)) + "\n".join(p.read_text() for p in ROOT.glob("docs/verdicts/*/*.md"))
    assert [word.name for word in WORDS if not PATTERNS[word].search(everywhere)] == []


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.name)
def test_a_meaning_is_a_sentence_and_not_the_word_again(word: Word) -> None:
    assert word.meaning[0].isupper() and word.meaning.endswith(".") and len(word.meaning) <= 150
    assert PATTERNS[word].search(f"the {word.name} of") and not re.match(rf"{word.name}\b.* is", word.meaning, re.I)


def test_options_and_paths_are_no_words() -> None:
    assert words_in("--eval.draw runs/pool/x.png --fit.epochs; canvas_size; model.pool") == []
    assert [word.name for word in words_in("MAE on a pool, over draws of labels")] == ["draw", "MAE", "pool"]


def test_the_report_leads_from_the_first_place_of_a_word_to_its_meaning(page: str) -> None:
    Seen(page)  # every tag is closed
    linked = re.findall(r'<a class="word" href="#word-([\w-]+)" title="[^"<]+">([^<]+)</a>', page)
    explained = re.findall(r'<div id="word-([\w-]+)"><dt>', page)
    assert sorted(anchor for anchor, _ in linked) == sorted(explained) and len(explained) > 10
    by_anchor = {word.anchor: word for word in WORDS}
    for anchor, text in linked:
        assert PATTERNS[by_anchor[anchor]].fullmatch(text)
        before = page[: page.index(f'href="#word-{anchor}"')]
        read = re.sub(r"<[^>]*>?", " ", re.sub(r"<a class=\"word\".*?</a>", " ", _UNREAD.sub(" ", before)))
        assert not PATTERNS[by_anchor[anchor]].search(read), f"{text} stands before its explanation"


def test_the_report_explains_every_word_it_uses(page: str) -> None:
    read = re.sub(r"<[^>]*>", " ", _UNREAD.sub(" ", page.partition('<section id="words">')[0]))
    explained = set(re.findall(r'<div id="word-([\w-]+)"', page))
    assert {word.anchor for word in words_in(read)} <= explained


def test_the_report_in_markdown_ends_with_its_words(tmp_path: Path) -> None:
    text = markdown(build(read_verdict(small(tmp_path, classes=("a", "b", "c")))))
    body, _, words = text.partition("\n## Words\n")
    assert {word.name for word in words_in(body)} == set(re.findall(r"^- \*\*(.+?)\*\*: ", words, re.MULTILINE))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__)
def test_help_explains_its_words_before_the_options(recipe: type) -> None:
    described, _, rest = helped(recipe).partition("\noptions:")
    _, _, words = described.partition("\nwords:\n")
    told = re.findall(r"^  (\S.*?)  ", words, re.MULTILINE)
    assert told == [word.name for word in words_in(rest)] and len(told) > 2
    assert max(map(len, words.splitlines())) <= 79


@pytest.mark.parametrize("word", words_in(_CODE.sub("", re.sub(r"\]\([^)]*\)", "]", README))), ids=lambda w: w.name)
def test_the_readme_explains_a_word_where_it_first_stands(word: Word) -> None:
    plain = _CODE.sub(lambda found: " " * len(found[0]), README)
    first = PATTERNS[word].search(re.sub(r"\]\([^)]*\)", lambda found: " " * len(found[0]), plain))
    assert first is not None
    if word.name in BY_HAND:
        assert abs(README.index(BY_HAND[word.name]) - first.start()) < 200
    else:
        assert re.match(rf"[^\[\]]*\]\(docs/glossary\.md#{word.anchor}\)", README[first.end() :]), first[0]


def test_the_page_of_words_is_the_table() -> None:
    spec = importlib.util.spec_from_file_location("make_glossary", ROOT / "docs" / "make_glossary.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), "python docs/make_glossary.py"


def test_names_and_abbreviations_are_explained_or_known(page: str) -> None:
    """What looks like a term (capitals inside a word, a name in mid-sentence, a letter and a hyphen) is in a table."""
    helps = [re.sub(r"(?s)^.*?\noptions:", "", helped(recipe)) for recipe in RECIPES]
    docs = [module_of(script).__doc__ or "" for script in scripts().values() if not _has_options(script)]
    report = re.sub(r"<[^>]*>", " ", _UNREAD.sub(" ", page))
    unknown: dict[str, str] = {}
    for text in (README, report, *helps, *docs):
        text = re.sub(
            r"\]\([^)]*\)|\([a-z]\w+: .*?\)|--[\w.]+( [A-Z_]+)?|\{[^}]*\}|\"[^\"]*\"", " ", _CODE.sub(" ", text)
        )
        for found in re.finditer(
            r"(?<![\w./#-])(?:\w*[A-Z]\w*[A-Z]\w*|(?<=[a-z,] )[A-Z][a-z]+|[a-z]-[A-Za-z]+)\b", text
        ):
            term = found[0]
            if term not in KNOWN and not words_in(term) and term.rstrip("s") not in KNOWN and not term.isupper():
                unknown[term] = text[max(0, found.start() - 40) : found.end() + 20]
    assert unknown == {}


def _has_options(script: str) -> bool:
    module = module_of(script)
    return not hasattr(module, "command") and hasattr(options_of(module), "__dataclass_fields__")
