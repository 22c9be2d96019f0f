"""Self-supervised pre-training of Vision Transformers, judged against the labelled baseline.

>>> import ssl_vit
>>> run = ssl_vit.pretrain("mae", data="my_images")
>>> ssl_vit.evaluate(run, "knn").value
>>> ssl_vit.embed(run, "new_images").vectors
>>> ssl_vit.show(ssl_vit.embed(run))
>>> ssl_vit.verdict(data="pool", labels="labelled", budget="2h").sentence

Importing this imports nothing else; each of these functions brings what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ssl_vit.face import Embedding as Embedding
    from ssl_vit.face import Evaluation as Evaluation
    from ssl_vit.face import Run as Run
    from ssl_vit.face import VerdictResult as VerdictResult
    from ssl_vit.face import embed as embed
    from ssl_vit.face import evaluate as evaluate
    from ssl_vit.face import load_backbone as load_backbone
    from ssl_vit.face import pretrain as pretrain
    from ssl_vit.face import push_to_hub as push_to_hub
    from ssl_vit.face import show as show
    from ssl_vit.face import verdict as verdict

__version__ = "0.2.0.dev0"

_FACE = (
    "Embedding", "Evaluation", "Run", "VerdictResult", "embed", "evaluate", "load_backbone", "pretrain", "push_to_hub",
    "show", "verdict",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _FACE:
        return getattr(import_module("ssl_vit.face"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_FACE])
