"""Applies a trained classifier to images: a table of probabilities, and a page of what to label next.

accelerate launch eval/predict.py --classifier RUN --data.path IMAGES --out predictions.csv
RUN is a run of eval/finetune.py or recipes/supervised.py. Without --data.path: the images of that run that have no
label. Rows are sorted, least certain first; all splits are read.
"""

from __future__ import annotations

from pathlib import Path

from ssl_vit.configs import PredictRecipe
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import check_out
from ssl_vit.script import run_script


def check(cfg: PredictRecipe) -> Path:
    """What is asked before processes are started.

    Args:
        cfg: What ``--help`` lists.
    """
    path = check_out(cfg.out, (".csv", ".parquet"))
    page = path.with_suffix(".html")
    if cfg.predict.pictures and page.exists():
        from ssl_vit.report.labelling import is_page

        if not is_page(page):
            raise UserError(
                f"--out {cfg.out}: the page beside it would replace {page}, which is another; name another table, or "
                "leave the page out with --predict.pictures 0"
            )
    return path


def main(cfg: PredictRecipe) -> None:
    """Classifier and images in, table and page out.

    Args:
        cfg: What ``--help`` lists.
    """
    path = check(cfg)
    from ssl_vit.evaluation.predict import doubtful, predict, prediction_table, write_table

    found = predict(cfg)
    if found is None:
        return
    columns = prediction_table(found, found.order() if cfg.predict.order == "certainty" else range(len(found.images)))
    write_table(columns, path)
    missed = f", {len(found.reasons):,} of them could not be read (column unreadable)" if found.reasons else ""
    what = "predicted number(s)" if found.certainty is None else "probabilities"
    print(f"{path}: {found.words}{missed}; {len(found.labelling.names)} {what} each")
    if not cfg.predict.pictures or found.certainty is None:
        return
    from ssl_vit.report.labelling import Answered, Doubtful, write_page

    doubts = doubtful(found, cfg.predict.pictures)
    said = [(c, p) for c, p in zip(columns["certainty"], columns["prediction"], strict=True) if p is not None]
    several, place = found.labelling.kind == "multilabel", Path(found.images.name)
    answered = Answered(
        str(place), len(found.images), found.judged, [c for c, _ in said], [p for _, p in said], several
    )
    page = path.with_suffix(".html")
    write_page(page, answered, [Doubtful(*one) for one in doubts], place.name)
    print(f"{page}: what to label next, the {len(doubts):,} images that the classifier is least certain of")


if __name__ == "__main__":
    run_script(main, PredictRecipe, __doc__ or "")
