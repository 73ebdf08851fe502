"""What people would use instead, each given the table in the form that suits it."""

from __future__ import annotations

from functools import partial

from sklearn.ensemble import RandomForestClassifier

from .learner import Learner, MakeClassifier
from .references import DirichletClassifier, GridSearchedSVC, LaplaceGPC
from .trees import Boosting, CatBoost, LightGBM, TunedLogistic

SEARCH = "num_folds=3, search_rows=2000"
"""How the SVC is tuned: twenty settings on three folds of at most 2,000 rows."""
HERE = "from kernel_embed.lab.compare import"


def reference_learners(smoothness: float | None = None) -> dict[str, Learner]:
    """Every reference by name; Gaussian processes with a Matérn kernel of that smoothness."""
    smooth = "" if smoothness is None else str(smoothness)
    return {
        "svc grid": _of_ours(
            partial(GridSearchedSVC, num_folds=3, search_rows=2000),
            "scikit-learn's SVC (squared exponential), grid search, calibrated on folds",
            f"GridSearchedSVC({SEARCH})",
            "unit_range",
        ),
        "svc grid, pairwise": _of_ours(
            partial(GridSearchedSVC, pairwise=True, num_folds=3, search_rows=2000),
            "the same SVC with libsvm's pairwise probabilities",
            f"GridSearchedSVC(pairwise=True, {SEARCH})",
            "unit_range",
        ),
        "gpc": _of_ours(
            partial(LaplaceGPC, smoothness),
            "scikit-learn's Gaussian process classifier, ARD kernel",
            f"LaplaceGPC({smooth})",
            "unit_range",
        ),
        "dirichlet": _of_ours(
            partial(DirichletClassifier, smoothness),
            "GPyTorch's Dirichlet classifier, ARD kernel",
            f"DirichletClassifier({smooth})",
            "unit_range",
        ),
        "random forest": Learner(
            partial(RandomForestClassifier, 300, random_state=0),
            "scikit-learn's random forest of 300 trees",
            "RandomForestClassifier(300, random_state=0)",
            ("from sklearn.ensemble import RandomForestClassifier",),
            "ordinal",
            True,
        ),
        "boosting": _of_ours(
            Boosting, "scikit-learn's histogram gradient boosting with its defaults", "Boosting()", "Categories"
        ),
        "logistic": _of_ours(
            TunedLogistic, "scikit-learn's logistic regression, C by three folds", "TunedLogistic()", "standardized"
        ),
        "catboost": _of_ours(CatBoost, "CatBoost with its defaults (extra bench)", "CatBoost()", "Categories"),
        "lightgbm": _of_ours(LightGBM, "LightGBM with its defaults (extra bench)", "LightGBM()", "Categories"),
    }


def _of_ours(make: MakeClassifier, words: str, expression: str, form: str) -> Learner:
    """A reference behind a class of :mod:`kernel_embed.lab.compare`."""
    return Learner(make, words, expression, (f"{HERE} {expression.partition('(')[0]}",), form, is_reference=True)
