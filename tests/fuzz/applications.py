"""Votes, estimators, tables, comparisons and pictures."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed import plots, tabular, voting
from kernel_embed.estimators import FeatureImportances

from .entries import ENTRIES, Probabilities, ask
from .inference import draws, maybe_kernel
from .inputs import NAN, Inputs, M, N, clean_x


def array(value: object) -> object:
    """Tensors without more ado as arrays, which is what estimators are given."""
    try:
        return value.detach().numpy() if isinstance(value, torch.Tensor) else value
    except (TypeError, RuntimeError, NotImplementedError):
        return value


# votes ---------------------------------------------------------------------------------------------------------------


VOTING = {"lams": (0.1,), "betas": (0.1,)}
ENTRIES |= {
    "vote_path": lambda i: [
        point.solution.gap
        for point in i.call(voting.vote_path, None, array(i.x()), array(i.labels(2)), solver=None, tolerance=1e-6,
                            **VOTING)
    ],
    "cross_validate_votes": lambda i: Probabilities(i.call(
        voting.cross_validate_votes, voting.polynomial_kernels((1, 2)), array(i.x()), array(i.labels(2)),
        num_folds=3, seed=0, **VOTING).error),
    "complexities": lambda i: ask(i.call(
        voting.complexities, voting.polynomial_kernels((1, 2)), array(i.x()),
        i.pick("method", ("trace", "dimension", "local", "monte_carlo")), radius=None, num_draws=10, seed=0), "values"),
    "theorems": lambda i: ask(i.call(
        voting.margin_bound, array(i.x(usual=np.linspace(-1, 1, N))), theorem=i.pick("theorem", (1, 2)),
        mean_complexity=0.1, p=2, rho=0.5, confidence=0.95), "value"),
    "polynomial_kernels": lambda i: len(i.call(voting.polynomial_kernels, degrees=(1, 2), offset=1.0)),
    "gaussian_kernels": lambda i: len(i.call(voting.gaussian_kernels, gammas=(0.1,))),
}  # fmt: skip


def voted_classifier(i: Inputs) -> object:
    families = i.setting("kernels", None, ("rbf", [], [None], 3, [lambda a, b: a]))
    settings = i.call(dict, lam=0.01, beta=0.01, complexity="trace")
    model = ke.VotedKernelClassifier(families, **settings).fit(array(i.x()), array(i.labels()))
    return ask(model, "predict_proba", array(i.query())), ask(model, "objective_ gap_")


def vote_guarantee(i: Inputs) -> object:
    y = np.arange(N) % 2
    model = ke.VotedKernelClassifier(lam=0.001, beta=0.001).fit(clean_x().numpy() + y[:, None], y)
    return i.call(model.guarantee, rho=None, theorem=1, confidence=0.95).value


def kernel_families(i: Inputs) -> object:
    family = voting.KernelFamily([i.kernel(), RBFKernel().double()])
    votes = voting.Votes(np.array([0, 1]), np.array([0, 1]), np.array([0.5, -0.5]))
    return voting.SparseVote(family, [votes], array(i.x()))(array(i.query()))


# estimators and tables -----------------------------------------------------------------------------------------------

FRAMES = {
    "clean": lambda: pd.DataFrame(clean_x().numpy(), columns=["a", "b"]),
    "words": lambda: pd.DataFrame({"a": list("abcabcabcabcab"), "b": np.arange(N)}),
    "missing": lambda: pd.DataFrame({"a": [None, 1.0] * 7, "b": [None] * N}),
    "dates": lambda: pd.DataFrame({"a": pd.date_range("2020", periods=N), "b": [True, False] * 7}),
    "mixed": lambda: pd.DataFrame({"a": [1, "x"] * 7, "b": [NAN, np.inf] * 7}),
    "twice": lambda: pd.DataFrame(clean_x().numpy(), columns=["a", "a"]),
    "categories": lambda: pd.DataFrame({"a": pd.Categorical(list("xyxyxyxyxyxyxy")), "b": np.arange(N) * 1e160}),
    "lists": lambda: pd.DataFrame({"a": [[1, 2]] * N, "b": [{}] * N}),
    "complex": lambda: pd.DataFrame({"a": [1j] * N, "b": np.arange(N)}),
    "no rows": lambda: pd.DataFrame({"a": [], "b": []}),
    "no columns": lambda: pd.DataFrame(index=range(N)),
}


def frame(i: Inputs, name: str = "frame") -> object:
    return FRAMES[i.pick(name, tuple(FRAMES))]()


def table_encoder(i: Inputs) -> object:
    encoder = i.call(tabular.TableEncoder, max_categories=40).fit(frame(i))
    return np.nan_to_num(encoder.transform(frame(i, "new frame")))  # a missing number stays one


def classifier(i: Inputs) -> object:
    model = i.call(ke.MulticlassEmbeddingClassifier, maybe_kernel(i), max_evaluations=3, random_state=0)
    return ask(model.fit(array(i.x()), array(i.labels())), "predict_proba", array(i.query()))


def classifier_of_tables(i: Inputs) -> object:
    model = ke.MulticlassEmbeddingClassifier(max_evaluations=2, random_state=0).fit(frame(i), array(i.labels()))
    return ask(model, "predict_proba", frame(i, "new frame"))


def further_classifier(i: Inputs) -> object:
    model = ke.MulticlassEmbeddingClassifier(RBFKernel().double(), max_evaluations=2, random_state=0)
    i.call(model.fit, clean_x().numpy(), np.arange(N) % M, sample_weight=None)
    model.partial_fit(array(i.x()), array(i.labels()))
    return ask(model, "predict_proba", array(i.query()))


def rows_in_parts(i: Inputs) -> object:
    kernel, calibrated = i.pick("kernel", (None, RBFKernel().double())), i.pick("calibrated", (True, False))
    model = ke.MulticlassEmbeddingClassifier(kernel, calibrated=calibrated, max_evaluations=2, random_state=0)
    classes = i.setting("classes", np.arange(M), (None, [], [0], [0, 0, 1], np.arange(9), "012", 3, [NAN, 1.0]))
    model.partial_fit(array(i.x()), array(i.labels()), classes=classes)
    i.call(model.partial_fit, clean_x(1).numpy(), np.arange(N) % M, sample_weight=None)
    query = array(i.query())
    return ask(model, "predict_proba", query), i.call(model.predict_set, query, coverage=0.9)


def regressor(i: Inputs) -> object:
    model = i.call(ke.ConditionalEmbeddingRegressor, random_state=0).fit(array(i.x()), array(i.targets()))
    query = array(i.query())
    quantiles = i.call(model.predict_quantile, query, q=(0.1, 0.9))
    return model.predict(query), quantiles, i.call(model.predict_interval, query, coverage=0.9)


def regressor_of_tables(i: Inputs) -> object:
    settings = {"conformal": "auto", "max_rows": 2000, "subset_size": 1000, "num_features": None}
    model = i.call(ke.ConditionalEmbeddingRegressor, max_evaluations=2, random_state=0, **settings)
    i.call(model.fit, frame(i), array(i.targets()), sample_weight=None)
    new = frame(i, "new frame")
    return i.one_of(
        lambda: model.predict(new),
        lambda: Probabilities(i.call(model.predict_cdf, new, t=0.0)),
        lambda: i.call(model.sample, new, k=2),
        lambda: [[row.weight for row in rows] for rows in i.call(model.influential_rows, new, k=2)],
        lambda: i.call(model.predict_interval, new, coverage=0.8),
    )


def compared(i: Inputs, y: object, method: str, **settings: object) -> list[object]:
    x = array(i.x())
    table = i.call(
        ke.compare,
        np.tile(x, (3, 1)) if isinstance(x, np.ndarray) and x.ndim == 2 else x,
        np.tile(y, 3) if isinstance(y, np.ndarray) and y.ndim == 1 else y,
        methods=i.setting("methods", (method,), (("no such",), ("ridge",), ("logistic",), (), method, None)),
        **{"folds": 2, "seed": 0, "budget": 5.0, "progress": False, **settings},
    )
    return [row.loss for row in table.rows if row.note is None]


ENTRIES |= {
    "compare": lambda i: compared(i, array(i.labels()), "logistic"),
    "compare_numbers": lambda i: compared(i, array(i.targets()), "ridge", task="regression"),
}

# pictures ------------------------------------------------------------------------------------------------------------

NAME = "kernel.lengthscale"
HISTORIES = ([], None, [{"a": NAN}], [{}])
PICTURES = {
    "null": lambda i, v, w, ax: plots.plot_null(v, i.setting("statistic", 0.5), ax=ax),
    "relevance": lambda i, v, w, ax: plots.plot_relevance(i.x(), ax=ax),
    "importances": lambda i, v, w, ax: plots.plot_importances(
        FeatureImportances(("a",) * len(v), array(v), array(v), "loss", 3), i.setting("most", 2), ax=ax
    ),
    "decision_map": lambda i, v, w, ax: plots.plot_decision_map(
        ke.MulticlassEmbedding(i.kernel(), M).condition(clean_x(), torch.arange(N) % M), ax=ax
    ),
    "witness": lambda i, v, w, ax: plots.plot_witness(
        ke.Witness(ke.BayesianMeanEmbedding(i.kernel()), clean_x(), i.x()), ax=ax
    ),
    "embedding": lambda i, v, w, ax: plots.plot_embedding(ke.BayesianMeanEmbedding(i.kernel()).condition(i.x()), ax=ax),
    "convergence": lambda i, v, w, ax: plots.plot_convergence({"a": v}, ax=ax),
    "differences": lambda i, v, w, ax: plots.plot_differences(v, w, torch.ones(N), ax=ax),
    "draws": lambda i, v, w, ax: plots.plot_draws(v, "a", ax=ax),
    "evidence": lambda i, v, w, ax: plots.plot_evidence_curve(v, w, median=i.setting("median", 1.0), ax=ax),
    "learning": lambda i, v, w, ax: plots.plot_learning_curve(
        i.setting("history", [{"a": 1.0}, {"a": 0.5}], HISTORIES), ax=ax
    ),
    "probabilities": lambda i, v, w, ax: plots.plot_probability_map(
        lambda x: np.full((len(x), 2), 0.5), array(i.x()), np.arange(N) % 2, i.setting("num_classes", 2), ax=ax
    ),
    "ranking": lambda i, v, w, ax: plots.plot_ranking(list("abcdefghijklmn"), v, w, ax=ax),
    "reliability": lambda i, v, w, ax: plots.plot_reliability(v, np.arange(N) % 2 == 0, ax=ax),
    "traces": lambda i, v, w, ax: plots.plot_traces(draws(), i.setting("name", NAME), ax=ax),
    "density": lambda i, v, w, ax: plots.plot_density(draws(), NAME, entry=i.setting("entry", 0), ax=ax),
}


def drawn(i: Inputs, kind: str) -> None:
    values = array(i.x(usual=np.linspace(0.1, 1.0, N))), array(i.x("query", np.linspace(1.0, 0.1, N)))
    PICTURES[kind](i, *values, plots.free_figure(2.0, 2.0).subplots())


ENTRIES |= {f"plot_{kind}": functools.partial(drawn, kind=kind) for kind in PICTURES}
