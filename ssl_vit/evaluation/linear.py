"""Logistic regression on standardised features, its strength chosen inside the given labels."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ssl_vit.configs import LinearConfig
from ssl_vit.core.errors import UserError
from ssl_vit.evaluation.few_label import group_folds


class LinearFit(NamedTuple):
    """A fitted probe."""

    scores: Float[np.ndarray, "q K"]
    """Log-probabilities of every class; a class without training label has minus infinity."""
    strength: float
    """C, the inverse regularisation that was used."""
    selection: str
    """How C was chosen, in words."""
    converged: bool
    """Whether the solver finished within its iterations."""


def linear_probe(
    train: Float[np.ndarray, "n D"],
    labels: Int[np.ndarray, " n"],
    queries: Float[np.ndarray, "q D"],
    *,
    classes: int,
    cfg: LinearConfig,
    seed: int,
    groups: Int[np.ndarray, " n"] | None = None,
) -> LinearFit:
    """Fits on training features only, of two of the ``classes`` at least; the queries' labels are never seen.

    ``seed`` is that of the folds; groups of training images are held out whole.

    Raises:
        UserError: When all labels are of one class.
    """
    model = make_pipeline(StandardScaler(), LogisticRegression(C=cfg.default, max_iter=cfg.max_iter))
    _, counts = np.unique(labels, return_counts=True)
    if len(counts) < 2:
        raise UserError(f"logistic regression needs labels of two classes; the {len(labels)} given have one")
    folds: Any = StratifiedKFold(cfg.folds, shuffle=True, random_state=seed) if counts.min() >= cfg.folds else None
    if groups is not None:
        together = group_folds(labels, "class", groups, cfg.folds, seed)
        folds = None if together is None else PredefinedSplit(together)
    with warnings.catch_warnings():  # non-convergence is reported in the result, not as a warning per fold
        warnings.simplefilter("ignore", ConvergenceWarning)
        if folds is not None and len(cfg.grid) > 1:
            search = GridSearchCV(model, {"logisticregression__C": list(cfg.grid)}, cv=folds, scoring="accuracy")
            model = search.fit(train, labels).best_estimator_
            strength = float(search.best_params_["logisticregression__C"])
            selection = f"{cfg.folds}-fold cross-validation over C inside the training labels"
        else:
            only = len(cfg.grid) == 1
            strength = next(iter(cfg.grid)) if only else cfg.default
            few = "too few groups" if groups is not None else f"a class has fewer than {cfg.folds} labels"
            selection = f"fixed: {'the only candidate' if only else few}"
            model.set_params(logisticregression__C=strength).fit(train, labels)
    regression: Any = model[-1]
    logits = regression.decision_function(model[:-1].transform(queries)).astype(np.float64)
    if logits.ndim == 1:  # of the second of two classes
        logits = np.stack([np.zeros_like(logits), logits], axis=1)
    scores = np.full((len(queries), classes), -np.inf)
    scores[:, regression.classes_] = log_softmax(logits, axis=1)  # of wide features, probabilities underflow to 0
    return LinearFit(scores, strength, selection, bool(np.max(regression.n_iter_) < cfg.max_iter))
