"""House words: each that stands in README, report or ``--help`` is explained there, at its first place or before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ssl_vit.configs.cli import _parser
from ssl_vit.core.glossary import PATTERNS, WORDS, Word, words_in
from ssl_vit.core.started import module_of, scripts
from ssl_vit.methods import known_recipes
from ssl_vit.report.findings.records import read_verdict
from ssl_vit.report.page.content import build
from ssl_vit.report.page.render import _UNREAD, html, markdown
from ssl_vit.verdict.options import verdict_recipe

from made_pages import script_of
from made_report import Seen, small

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RECIPES = (*known_recipes(), verdict_recipe())
BY_HAND = {
    "pre-training": "pre-trains a network on images without labels",
    "baseline": "the same network trained\nfrom scratch",
    "raw pixels": "against raw pixels",
    "MAE": "masked autoencoder (MAE)",
    "run": "RUN is the folder that pre-training names at its end",
    "verdict": "One command says what to use with how many labels",
    "group": "groups (patient, slide) that stay together",
}
"""Words that the README explains in its own sentences."""
NAMES = (
    "AMD AMX AUROC Adam AdamW Ampere Any Apple CIFAR CPU CPUs Class ClassLabel CutMix DINOv2 DINOv3 DeiT EPYC Face "
    "Fair-baseline FlexiViT Free GPU GPUs Gaussian Hub Hugging III ImageNet Intel LARS Latin LayerNorm LeCun Linux "
    "Literal MLflow Mac NVIDIA None PyTorch Python RandAugment Ray ResNet SGD SIGReg Sinkhorn Sinkhorn-Knopp SwAV "
    "Torch TorchScript WebDataset Xie Zen a-d arXiv k-means t-SNE "
)
"""Names that stand in texts and are no words of this house: of machines, people, libraries, formats, and of optimisers
and operations that only whoever asks for them has to know."""
_CODE = re.compile(r"```.*?```|`[^`]*`|!\[[^\]]*\]\([^)]*\)", re.DOTALL)
_NOT_READ = re.compile(r"-h, --help|\]\([^)]*\)|\(type: .*?\)|--[\w.]+( [A-Z_]+)?|\{[^}]*\}|\"[^\"]*\"")
_TERM = re.compile(r"(?<![\w./#-])(?:\w*[A-Z]\w*[A-Z]\w*|(?<=[a-z,] )[A-Z][a-z]+|[a-z]-[A-Za-z]+)\b")
"""What looks like a term: capitals inside a word, a name in mid-sentence, a letter with a hyphen."""


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


READ = re.sub(r"\]\([^)]*\)", _blank, _CODE.sub(_blank, README))
"""What is read of the README, where it stands there."""


def helped(recipe: type) -> str:
    return _parser(recipe, explains=True).format_help()


def seen(page: str) -> str:
    """The words that a reader of a page sees."""
    return re.sub(r"<[^>]*>?", " ", _UNREAD.sub(" ", page))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return html(build(read_verdict(small(tmp_path_factory.mktemp("verdict"), classes=("a", "b", "c")))))


def test_words_are_in_order_and_every_one_is_used() -> None:
    names = [word.name.lower() for word in WORDS]
    assert names == sorted(set(names))
    texts = [README, *map(helped, RECIPES)]
    texts += [file.read_text(encoding="utf-8") for file in ROOT.glob("docs/**/*.md") if file.name != "glossary.md"]
    assert [word.name for word in WORDS if not any(PATTERNS[word].search(text) for text in texts)] == []


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.name)
def test_a_meaning_is_a_sentence(word: Word) -> None:
    assert word.meaning[0].isupper() and word.meaning.endswith(".") and len(word.meaning) <= 150


def test_options_and_paths_are_no_words() -> None:
    assert words_in("--eval.draw runs/pool/x.png --fit.epochs; canvas_size; model.pool") == []
    assert [word.name for word in words_in("MAE on a pool, over draws of\n   labels")] == ["draw", "MAE", "pool"]


def test_the_report_leads_from_the_first_place_of_a_word_to_its_meaning(page: str) -> None:
    Seen(page)  # every tag is closed
    linked = re.findall(r'<a class="word" href="#word-([\w-]+)" title="[^"<]+">([^<]+)</a>', page)
    explained = re.findall(r'<div id="word-([\w-]+)"><dt>', page)
    assert sorted(anchor for anchor, _ in linked) == sorted(explained) and len(explained) > 10
    by_anchor = {word.anchor: word for word in WORDS}
    for anchor, text in linked:
        assert PATTERNS[by_anchor[anchor]].fullmatch(text)
        before = page[: page.index(f'<a class="word" href="#word-{anchor}"')]
        read = seen(re.sub(r'<a class="word".*?</a>', " ", before))
        assert not PATTERNS[by_anchor[anchor]].search(read), f"{text} stands before its explanation"


def test_the_report_explains_every_word_it_uses(page: str) -> None:
    body = re.sub(r'<a class="word".*?>(.*?)</a>', r"\1", page.partition('<section id="words">')[0])
    assert {word.anchor for word in words_in(seen(body))} == set(re.findall(r'<div id="word-([\w-]+)"', page))


def test_the_report_in_markdown_ends_with_its_words(tmp_path: Path) -> None:
    text = markdown(build(read_verdict(small(tmp_path, classes=("a", "b", "c")))))
    body, _, words = text.partition("\n## Words\n")
    assert {word.name for word in words_in(body)} == set(re.findall(r"^- \*\*(.+?)\*\*: ", words, re.MULTILINE))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__)
def test_help_explains_its_words_before_the_options(recipe: type) -> None:
    described, _, rest = helped(recipe).partition("\noptions:")
    _, _, words = described.partition("\nwords:\n")
    told = re.findall(r"^  (\S.*?)  ", words, re.MULTILINE)
    assert told == [word.name for word in words_in(rest)] and told
    assert max(map(len, words.splitlines())) <= 79


@pytest.mark.parametrize("word", words_in(READ), ids=lambda word: word.name)
def test_the_readme_explains_a_word_where_it_first_stands(word: Word) -> None:
    first = PATTERNS[word].search(READ)
    assert first is not None
    if word.name in BY_HAND:
        assert abs(README.index(BY_HAND[word.name]) - first.start()) < 200
    else:
        assert re.match(rf"[^\[\]]*\]\(docs/glossary\.md#{word.anchor}\)", README[first.end() :]), first[0]


def test_the_page_of_words_is_the_table() -> None:
    made = script_of("make_glossary")
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), "python docs/make_glossary.py"


def test_names_and_abbreviations_are_words_or_known_to_everybody(page: str) -> None:
    helps = [helped(recipe).partition("\noptions:")[2] for recipe in RECIPES]
    modules = [module_of(script) for script in scripts().values()]
    lists = [module.__doc__ or "" for module in modules if hasattr(module, "command")]
    unknown: dict[str, str] = {}
    sentences = re.sub(r"<[^>]*>?", " . ", _UNREAD.sub(" ", page))  # what begins after a tag begins a sentence
    for text in (README.replace("\n\n", " . "), sentences, *helps, *(text.replace("\n", " . ") for text in lists)):
        text = " ".join(_NOT_READ.sub(" ", _CODE.sub(" ", text)).split())
        for found in _TERM.finditer(text):
            around = text[
                max(0, found.start() - 7) : found.end() + 12
            ]  # "Vision Transformer" is found by both its words
            if found[0] not in NAMES.split() and not words_in(around) and not found[0].isupper():
                unknown[found[0]] = around
    assert unknown == {}
