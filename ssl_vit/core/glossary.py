"""Every house word with its meaning in plain words: report, ``--help`` and docs/glossary.md explain from here."""

from __future__ import annotations

import re
from typing import NamedTuple


class Word(NamedTuple):
    """A word that this project uses in a sense of its own, or that not every reader knows."""

    name: str
    meaning: str
    """A sentence or two, as one would say it."""
    forms: str = ""
    """Regular expression of how texts have it, small letters also as capitals; default: its name, also with an s."""

    @property
    def anchor(self) -> str:
        """What a link to it ends with."""
        return re.sub(r"\W+", "-", self.name.lower()).strip("-")


WORDS = (
    Word("backbone", "The network that turns an image into a vector, without what a method or a classifier puts on "
         "top. It is what a run leaves behind."),
    Word("balanced accuracy", "The share of right answers in each class, averaged over the classes, so that rare "
         "classes count as much as common ones.", "balanced accuracy|balanced"),
    Word("baseline", "The same network, trained from random weights on the labels alone: what pre-training has to "
         "beat.", "labelled baseline|baseline|from scratch"),
    Word("BEiT", "Bao et al. 2022: patches are hidden in blocks, and the network says which visual word stands behind "
         "each; here words are clusters of patches."),
    Word("budget", "The time that a verdict may take; it is planned for before anything is trained."),
    Word("canvas", "The common size that images are decoded to before crops are cut from them."),
    Word("CKA", "How alike the vectors of two networks are for the same images, however they are turned: 1 for the "
         "same, about 0 for unrelated ones."),
    Word("CNN", "A convolutional network, here a ResNet: what one would train if there were no Vision Transformers."),
    Word("collapse", "A failure of training without labels: all images get the same vector, and the loss looks fine.",
         "collapse|collapses|collapsed"),
    Word("DIET", "Ibrahim et al. 2024: every image is a class of its own, which a classifier tells from all others, "
         "however it is varied."),
    Word("DINO", "Caron et al. 2021: crops of one image have to get the same answer, from the network and from a slow "
         "average of itself."),
    Word("distillation", "A network learns to give images the vectors of another one, its teacher, which is trained "
         "already."),
    Word("draw", "One random choice of which images have labels. Several draws show how much of a result is luck.",
         "draws?"),
    Word("drift", "How far a network's vectors have moved from those that its training began with."),
    Word("effective batch", "The images of one step, over all processes and all passes that add up to it.",
         "effective batch(?: size)?"),
    Word("epoch", "As many steps as it takes to visit every image once."),
    Word("fine-tuning", "Training all weights of a pre-trained network further, on labels.",
         "fine-tun(?:ing|e|es|ed)"),
    Word("fingerprint", "A short hash of weights, or of images: of files it takes names, places and sizes, not what is "
         "in them."),
    Word("FLOP", "One multiplication or addition. Their number is what a training costs on any machine; G, T and P "
         "are 10^9, 10^12 and 10^15 of them.", "[KMGTPEZ]?FLOPs?"),
    Word("group", "Images that belong together (one patient, slide or scene), and so must not be torn apart by a "
         "split.", r"groups \(|groups on both sides|no groups|their group|groups that"),
    Word("Holm", "An adjustment for many comparisons at once: one of many looks like a gain by luck alone, so each "
         "has to be clearer.", "Holm(?:'s adjustment)?"),
    Word("interval", "The 95 % interval holds the true value in 95 of 100 such studies; where zero is in it, there "
         "may be no difference.", "95 % intervals?|intervals?"),
    Word("k-NN", "The label of an image is voted for by the k training images nearest to it, by their vectors. "
         "Nothing is trained.", "k-NN|k-nearest(?: |-)neighbours?"),
    Word("labels saved", "How many labels fewer reach the result that the baseline has with all of them."),
    Word("layer decay", "In fine-tuning, layers nearer to the pixels learn more slowly than those above them.",
         "layer decays?|layer-wise"),
    Word("leak", "A test image, or a copy or a relative of one, among the images that are trained on: it makes "
         "numbers too good.", "leaks?|leaked"),
    Word("LeJEPA", "Balestriero and LeCun 2025: crops of one image get the same vector, and vectors of all images "
         "spread evenly."),
    Word("linear probe", "A classifier of one layer that is trained on a network's vectors; the network stays as it "
         "is.", "linear probes?|linear-probe|probes?"),
    Word("MAE", "Masked autoencoder (He et al. 2022): the network sees a part of an image and paints the rest.",
         "MAE|masked autoencoders?"),
    Word("method", "A way to pre-train: MAE, SimMIM, BEiT, DINO, LeJEPA, DIET, distillation."),
    Word("micro-batch", "The images that go through the network at once; several of them may make one step.",
         "micro-batch(?:es)?"),
    Word("multi-crop", "Two large and several small crops of every image, which have to get the same answer."),
    Word("patch", "A small square of pixels, which a Vision Transformer reads as one piece.", "patch(?:es)?"),
    Word("points", "Percentage points: 80 % is 5 points above 75 %."),
    Word("pool", "The images to pre-train on. They need no labels.", "pools?"),
    Word("pre-training", "Training on images alone, before any label is used.",
         "pre-train(?:ing|s|ed|ings)?|self-supervised"),
    Word("preset", "Defaults that go together, for one size of images."),
    Word("protocol", "All that gives a number its meaning: images, views, options. Only numbers of one protocol stand "
         "in one table."),
    Word("random weights", "The same network before any training: a control, because its vectors are already worth "
         "something.", "random weights|random-weights"),
    Word("raw pixels", "The image itself instead of a network's vector: a control that every network should beat.",
         "raw pixels"),
    Word("run", "One training and the folder that it leaves behind; RUN in a command stands for that folder.",
         "RUN|run director(?:y|ies)|run's folder"),
    Word("seed", "The number that all random choices follow from: the same seed makes the same run."),
    Word("SimMIM", "Xie et al. 2022: masked patches are replaced by a placeholder, and their pixels are guessed."),
    Word("soup", "The average of the weights of several fine-tunings (Wortsman et al. 2022)."),
    Word("stochastic depth", "In training, blocks of the network are left out at random, so that none is relied on."),
    Word("suite", "Several labelled sets that one network is judged on, with one table of them."),
    Word("top-1", "The share of test images whose class is the first guess.", "top-1"),
    Word("trial", "One set of options that is tried when a method is tuned."),
    Word("verdict", "The answer what to use on given images with how many labels, how sure that is, and whether "
         "pre-training pays."),
    Word("view", "A training image as the network gets it: cropped, mirrored, recoloured or partly hidden at random.",
         "views?"),
    Word("ViT", "Vision Transformer: a network that reads an image as a row of patches.",
         "ViTs?(?:-(?:Ti|S|B|L|H))?|Vision Transformers?"),
    Word("warm-up", "The first steps of a training, in which the learning rate rises to its peak.", "warm-ups?"),
    Word("window", "A square that is cut from a very large image at its own scale."),
)  # fmt: skip


def _pattern(word: Word) -> re.Pattern[str]:
    """Its forms as whole words, with hyphens and spaces as pages have them; never a part of an option or a path."""
    forms = word.forms or f"{word.name}s?".replace("ss?", "s")
    forms = forms.replace("-", "[-\N{NON-BREAKING HYPHEN}]").replace(" ", r"\s+")
    return re.compile(rf"(?<![\w./-])(?:{forms})(?![\w-]|/[a-z])", re.IGNORECASE if forms.islower() else 0)


PATTERNS = {word: _pattern(word) for word in WORDS}
"""What finds each word in a text."""


def words_in(text: str) -> list[Word]:
    """The house words of a text, in alphabetical order.

    Args:
        text: Plain; options and paths do not count.
    """
    return sorted((word for word, form in PATTERNS.items() if form.search(text)), key=lambda word: word.name.lower())
