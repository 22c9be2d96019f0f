"""The pictures of a verdict, as a task of its work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ssl_vit.figures.gallery import Start, save_gallery
from ssl_vit.figures.mistakes import Answers
from ssl_vit.methods.starts import start_called
from ssl_vit.report.findings.records import answers_beside
from ssl_vit.verdict.probing import Bank
from ssl_vit.verdict.study import Study
from ssl_vit.verdict.work import is_main, key_of


def draw_pictures(study: Study) -> dict[str, Any]:
    """Neighbours, mistakes, attention and components of every method, with all labels and the first draw."""
    pixels = Bank(study, "pixels", 0)
    data, shown = pixels.session.data, dict[str, Start]()
    for start in study.starts:
        shown[start] = Start(start_called(start).title)
        if "knn" in study.uses(start) and start != "random":
            bank = pixels if start == "pixels" else Bank(study, start, 0)
            columns = bank.pools[bank.own_pool]
            train, test = (replace(features, x=features.x[:, columns]) for features in (bank.train, bank.test))
            exported = None if start == "pixels" else bank.session.exported
            shown[start] = shown[start]._replace(exported=exported, features=(train, test))
        path = study.folder / "results" / f"{key_of(start, 'train', study.labels[-1], 0)}.npz"
        if study.kind == "class" and path.exists():
            kept = answers_beside(path)
            answers = Answers(kept["predicted"], kept["confidence"], pixels.test.index)
            trained = f"trained on all {study.labels[-1]:,} labels, draw 0"
            shown[start] = shown[start]._replace(answers=answers, trained=trained)
    made = save_gallery(shown, data.train, data.test, study.folder / "pictures") if is_main() else []
    return {"pictures": len(made)}
