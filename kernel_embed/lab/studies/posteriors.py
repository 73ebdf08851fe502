r"""Posteriors: averages of a classifier over its kernel, bands of an embedding, and simulation-based calibration.

*Averages*: a classifier averaged over the posterior of its kernel, compared with the point estimate under the same
objective and priors, except that sampling needs a prior on λ. *Sharpened* is the average at the power of the density
with the best leave-one-out probabilities.

*Bands*: P = N(0, 1), whose embedding under a squared exponential is known; the share of points of a grid and of
repetitions at which the pointwise 80 % band contains μ_P.

*Ranks*: θ from its prior, Y from the model of ``ConditionalEvidence``, N(0, K + nλI) in each column, L nearly
independent draws of the posterior given Y. If the sampler is right, the rank of the truth among them is uniform on
0 … L (Talts et al. 2018). The ranks of all data sets are tested by χ².
"""

from __future__ import annotations

import copy
import functools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior
from numpy.typing import NDArray
from scipy.stats import chisquare
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from ...embeddings import BayesianMeanEmbedding, ConditionalEmbedding
from ...estimators import MulticlassEmbeddingClassifier
from ...kernels import gram, log_scaled
from ...objectives import ConditionalEvidence, default_objective
from ...posteriors import NUTS, PosteriorWarning, sample_posterior
from ...results import Record, column, group, standard_error, table
from ..compare.comparison import shipped
from ..compare.embedding_classifiers import PosteriorAverageClassifier
from ..compare.tasks import calibration_error, log_losses
from ..datasets import scaled
from ..experiment import Experiment, Settings, product_cases
from ..runner import Case

DATASETS = ("iris", "wine", "digits", "cancer")
FOLDS, NUM_DIGITS = 5, 400
_point = partial(MulticlassEmbeddingClassifier, None, progress=False)
_average = partial(PosteriorAverageClassifier, None, num_samples=60, warmup_steps=40, max_tree_depth=10)
LEARNERS: dict[str, Callable[[], Any]] = {
    "evidence: point": lambda: _point(ConditionalEvidence()),
    "evidence: averaged": lambda: _average(ConditionalEvidence()),
    "default: point": lambda: _point(default_objective()),
    "default: averaged": lambda: _average(default_objective()),
    "default: sharpened": lambda: _average(default_objective(), powers=(1.0, 4.0, 16.0, 64.0)),
}


@functools.cache
def _tables() -> dict[str, tuple[NDArray[np.float64], NDArray[np.generic]]]:
    """Iris (two attributes), wine, a random part of the digits, and breast cancer."""
    digits, cancer = load_digits(), load_breast_cancer()
    rows = np.random.default_rng(0).permutation(len(digits.target))[:NUM_DIGITS]
    ours = {table.name: (table.x.to_numpy(), table.y) for table, _ in shipped()}
    part = {f"digits ({NUM_DIGITS} rows)": (digits.data[rows], digits.target[rows])}
    return {**ours, **part, "cancer": (cancer.data, cancer.target)}


def _average_cases(settings: Settings, num_rows: int | None) -> Iterator[Case]:
    """Each method on the folds of the data sets; ``num_folds`` says how many of the five are run."""
    names = settings.selected("datasets", DATASETS, DATASETS[:1] if settings.quick else DATASETS)
    every = tuple(LEARNERS)
    methods = settings.selected("methods", every, every[:2] if settings.quick else every)
    folds = range(min(settings.num_folds or (1 if settings.quick else FOLDS), FOLDS))
    tables = [dataset for dataset in _tables() if dataset.split()[0] in names]
    return product_cases("averaged", partial(_evaluate, num_rows=num_rows), dataset=tables, fold=folds, method=methods)


def _evaluate(dataset: str, method: str, fold: int, num_rows: int | None) -> Record:
    data, target = _tables()[dataset]
    step = 1 if num_rows is None else -(-len(target) // num_rows)
    data, target = data[::step], target[::step]
    train, test = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(data, target))[fold]
    x, y, x_test, y_test = scaled(data[train], target[train], data[test], target[test])
    learner, start = LEARNERS[method](), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # of one chain and sixty draws
        learner.fit(x, y)
    seconds = time.perf_counter() - start
    truth, p = np.searchsorted(learner.classes_, y_test), np.asarray(learner.predict_proba(x_test))
    # Text, so that records stay flat: the calibration error belongs to all folds together.
    return {
        "fit_seconds": seconds,
        "nll": float(log_losses(p, truth).mean()),
        "confidence": " ".join(f"{c:.6f}" for c in p.max(axis=1)),
        "correct": " ".join(str(int(c)) for c in p.argmax(axis=1) == truth),
    }


def summarize_averages(records: Sequence[Record]) -> str:
    """Accuracy, NLL and calibration error over all test rows; NLL less that of the point estimate, paired by fold."""
    rows = []
    in_order = sorted(records, key=lambda record: int(str(record["fold"])))
    by_method = group(in_order, lambda r: f"{r['dataset']}, {r['method']}")
    for name, own in by_method.items():
        point = by_method.get(f"{str(name).rpartition(':')[0]}: point", [])
        confidence, correct = (
            np.array(" ".join(str(r[field]) for r in own).split(), float) for field in ("confidence", "correct")
        )
        difference = ""
        if len(point) == len(own) and point is not own:
            gaps = column(own, "nll") - column(point, "nll")
            difference = f"{gaps.mean():+.4f}" + (f" ± {standard_error(gaps):.4f}" if len(gaps) > 1 else "")
        rows.append([
            str(name), f"{100 * correct.mean():.1f}", f"{column(own, 'nll').mean():.4f}", difference,
            f"{calibration_error(confidence, correct == 1):.4f}", f"{column(own, 'fit_seconds').mean():.1f}",
            str(len(own)),
        ])  # fmt: skip
    return table(["data, method", "accuracy %", "NLL", "less point", "calibration error", "seconds", "folds"], rows)


Noise = float | Literal["heteroscedastic", "central-limit"]
NOISES: tuple[Noise, ...] = (0.1, 0.01, 0.001, "heteroscedastic", "central-limit")


def _band_cases(settings: Settings, sizes: tuple[int, ...]) -> Iterator[Case]:
    """One case for each sample size, lengthscale and noise."""
    repetitions = settings.repetitions or (5 if settings.quick else 100)
    bands = partial(_bands, repetitions=repetitions, seed=settings.seed)
    return product_cases("coverage", bands, n=sizes, lengthscale=(0.3, 0.8), noise=NOISES)


@torch.no_grad()
def _bands(n: int, lengthscale: float, noise: Noise, repetitions: int, seed: int) -> Record:
    generator = torch.Generator().manual_seed(seed)
    query = torch.linspace(-2, 2, 9, dtype=torch.float64).unsqueeze(-1)
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    variance = lengthscale**2 + 1.0
    truth = lengthscale / math.sqrt(variance) * torch.exp(-0.5 * query.squeeze(-1).square() / variance)
    embedding = BayesianMeanEmbedding(kernel, noise=noise)
    inside, width = 0.0, 0.0
    for _ in range(repetitions):
        x = torch.randn(n, 1, generator=generator, dtype=torch.float64)
        lower, upper = embedding.condition(x).band(query, 0.8)
        inside += ((lower <= truth) & (truth <= upper)).double().mean().item() / repetitions
        width += (upper - lower).mean().item() / repetitions
    return {"coverage": inside, "width": width}


NUM_RANKS = 5
"""L + 1; every ``THINNING``-th draw of a chain is one of the L."""
THINNING, NUM_DATA, NUM_COLUMNS = 5, 12, 2


def _log_normal(name: str, center: float) -> dict[str, object]:
    return {f"{name}_prior": LogNormalPrior(math.log(center), 0.5), f"{name}_constraint": log_scaled()}


MODELS: dict[str, tuple[Callable[[], Kernel], int]] = {
    "squared exponential": (lambda: RBFKernel(**_log_normal("lengthscale", 0.3)), 1),
    "relevance of two features": (lambda: RBFKernel(ard_num_dims=2, **_log_normal("lengthscale", 0.5)), 2),
    "scaled Matérn": (
        lambda: ScaleKernel(MaternKernel(1.5, **_log_normal("lengthscale", 0.3)), **_log_normal("outputscale", 1.0)),
        1,
    ),
}
"""A function that makes the kernel, log θ ~ N(log θ₀, 0.5²), and the number of features."""


def _simulate(model: str, seed: int) -> tuple[ConditionalEmbedding, Tensor, Tensor, dict[str, Tensor]]:
    """The model, x, a draw of Y, and the parameters behind it."""
    generator, prior_of_lambda = np.random.RandomState(seed), LogNormalPrior(math.log(0.01), 1.0)
    embedding = ConditionalEmbedding(MODELS[model][0](), regularization_prior=prior_of_lambda).double()
    start = copy.deepcopy(embedding)
    truth: dict[str, Tensor] = {}
    for name, owner, prior, closure, setter in embedding.named_priors():
        assert setter is not None, "registered by name"
        value = closure(owner)
        sample = torch.exp(prior.loc + prior.scale * torch.as_tensor(generator.randn(*value.shape)))
        setter(owner, sample.to(value))
        truth[name.removesuffix("_prior")] = closure(owner).detach().flatten()
    x = torch.as_tensor(generator.rand(NUM_DATA, MODELS[model][1]))
    with torch.no_grad():
        A = gram(embedding.kernel, x) + NUM_DATA * embedding.regularization * torch.eye(NUM_DATA, dtype=x.dtype)
    Y = torch.linalg.cholesky(A) @ torch.as_tensor(generator.randn(NUM_DATA, NUM_COLUMNS))
    return start, x, Y, truth


def _rank_cases(settings: Settings, warmup_steps: int) -> Iterator[Case]:
    """Simulated data sets of every model."""
    count = settings.repetitions or (2 if settings.quick else 500)
    return product_cases("posterior-ranks", partial(_ranks, warmup_steps), number=range(count), model=MODELS)


def _ranks(warmup_steps: int, number: int, model: str) -> Record:
    """The number of draws below the truth, for every parameter."""
    embedding, x, Y, truth = _simulate(model, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        posterior = sample_posterior(
            embedding, ConditionalEvidence(), x, Y, num_samples=THINNING * (NUM_RANKS - 1), warmup_steps=warmup_steps,
            num_chains=1, seed=number, sampler=NUTS(parallel=False, max_tree_depth=5), progress=False,
        )  # fmt: skip
    record: Record = {"seconds": posterior.seconds}
    for name, values in truth.items():
        draws = posterior.samples[name][THINNING - 1 :: THINNING].reshape(NUM_RANKS - 1, -1)
        record |= {f"rank {name} {j}": int((draws[:, j] < value).sum()) for j, value in enumerate(values)}
    return record


def _summarize_ranks(records: Sequence[Record]) -> str:
    """χ² of the ranks in each parameter, and its p-value."""
    rows = []
    for model, own in group(records, lambda r: r["model"]).items():
        for field in sorted(key for key in own[0] if key.startswith("rank ")):
            ranks = column(own, field)
            statistic, p = chisquare(np.bincount(ranks.astype(int), minlength=NUM_RANKS))
            name = f"{model}, {field.removeprefix('rank ')}"
            rows.append([name, str(len(ranks)), f"{ranks.mean():.2f}", f"{statistic:.1f}", f"{p:.3f}"])
    return table(["model, parameter", "data sets", "mean rank", "χ²", "p"], rows)


AVERAGED = Experiment(
    "averaged", "probabilities averaged over the posterior of the kernel, and those of the point estimate",
    "an hour", ("experiment", "dataset", "method", "fold"), _average_cases, summarize_averages,
    options="num_folds datasets methods", parameters={"num_rows": None},
)  # fmt: skip
BANDS = Experiment(
    "coverage",
    "how often pointwise 80 % bands of the Bayesian embedding hold the embedding of N(0, 1), by noise model",
    "a minute", ("experiment", "n", "lengthscale", "noise"), _band_cases,
    {"noise": "{noise}", "n": "{n}", "lengthscale": "{lengthscale:g}", "coverage of 80 % bands": "{coverage:.2f}",
     "width": "{width:.3f}"},
    options="repetitions seed", parameters={"sizes": (50, 200)},
)  # fmt: skip
RANKS = Experiment(
    "posterior-ranks",
    "simulation-based calibration: is the rank of the truth among the draws uniform, for three models",
    "six minutes", ("experiment", "model", "number"), _rank_cases, _summarize_ranks, options="repetitions",
    parameters={"warmup_steps": 50},
)  # fmt: skip
