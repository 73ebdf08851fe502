r"""The temperature and the power of a Gibbs posterior, chosen by the averaged classifier.

The temperature is chosen by cross-validation. The power s is chosen without held-out data:

.. math::
    \hat s = \arg\min_s -\frac1n \sum_{i=1}^n \log \frac1S \sum_{j=1}^S p_{\theta_j}^{(-i)}(y_i \mid x_i), \qquad
    \theta_j \sim \big( p(\theta)\, e^{-c q(\theta)} \big)^s

:math:`p^{(-i)}` are the probabilities of draw j without row i, in closed form. The draws depend on row i, so a
temperature must not be chosen this way: the score rewards the overfitting that follows a higher one. The power leaves
the mode unchanged and decides only how far from it the draws may be.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from ..embeddings import MulticlassEmbedding
from ..embeddings.conditional import check_labels
from ..runtime import progress_bar
from ..validation import check_count, check_features, check_seed, generator_of
from .gaussian import Laplace
from .predictors import MulticlassObjective, MulticlassPosterior
from .priors import PosteriorWarning
from .sample import Settings, sample_posterior

SMALLEST_PROBABILITY = 1e-15


class TemperatureChoice(NamedTuple):
    """The best temperature, and the mean negative log probability of held-out labels at each."""

    temperature: float
    risks: dict[float, float]


class PowerChoice(NamedTuple):
    """The best power, the mean negative log of the leave-one-out probabilities at each, and the best posterior."""

    power: float
    scores: dict[float, float]
    posterior: MulticlassPosterior


def choose_temperature(
    embedding: MulticlassEmbedding,
    objective: MulticlassObjective,
    x: Tensor,
    y: Tensor,
    *,
    temperatures: Sequence[float] = (0.1, 0.3, 1.0, 3.0, 10.0),
    num_folds: int = 5,
    calibrated: bool = False,
    **settings: Unpack[Settings],
) -> TemperatureChoice:
    """The temperature with the lowest cross-validated risk of the averaged probabilities, for classifiers.

    Args:
        embedding: a :class:`kernel_embed.MulticlassEmbedding`.
        objective: of the Gibbs posterior.
        x: inputs.
        y: class numbers.
        temperatures: the candidates.
        num_folds: of the cross-validation.
        calibrated: score the calibrated probabilities.
        **settings: of :func:`kernel_embed.sample_posterior`; by default 50 draws of each of two chains by the Laplace
            approximation, with seed 0. The seed also draws the folds.

    Returns:
        ``temperature``, the best one, and ``risks``, the mean negative log probability of held-out labels by
        temperature.

    Raises:
        TypeError: if an argument is of another type.
        ValueError: if there is no temperature, there are fewer than two folds or more than rows, ``y`` is not one
            class number for each row, or the embedding has a batch shape.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.rand(40, 1, dtype=torch.float64), torch.arange(40) % 2
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> few = dict(temperatures=(0.01, 1.0), num_folds=3, num_samples=20)
        >>> list(ke.posteriors.choose_temperature(embedding, ke.LeaveOneOutRisk(), x, y, **few).risks)
        [0.01, 1.0]
    """
    own: Settings = {"num_samples": 50, "num_chains": 2, "seed": 0, "sampler": Laplace(), **settings, "progress": False}
    check_seed(own["seed"])
    if check_count("num_folds", num_folds, 0) < 2:
        raise ValueError(f"Cross-validation needs at least 2 folds, got num_folds={num_folds}.")
    x, y = _check_candidates(embedding, x, y, "temperatures", temperatures)
    n = x.shape[-2]
    if num_folds > n:
        raise ValueError(f"There are more folds ({num_folds}) than rows ({n}). Take fewer folds.")
    risks = dict.fromkeys(temperatures, 0.0)
    folds = torch.randperm(n, generator=generator_of(own["seed"]), device="cpu").tensor_split(num_folds)
    pairs = [(fold, temperature) for fold in folds for temperature in temperatures]
    with progress_bar(len(pairs), "temperatures", settings.get("progress")) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        for fold, temperature in pairs:
            rest = torch.ones(n, dtype=torch.bool, device="cpu")
            rest[fold] = False
            one: Settings = {**own, "temperature": temperature}
            posterior = sample_posterior(embedding, objective, x[rest], y[rest], **one)
            risk = _negative_log_probability(posterior.probabilities(x[fold], calibrated), y[fold])
            risks[temperature] += risk.sum().item() / n
            bar.update()
    return TemperatureChoice(min(risks, key=lambda t: risks[t]), risks)


def choose_power(
    embedding: MulticlassEmbedding,
    objective: MulticlassObjective,
    x: Tensor,
    y: Tensor,
    *,
    powers: Sequence[float] = (1.0, 4.0, 16.0, 64.0),
    **settings: Unpack[Settings],
) -> PowerChoice:
    """The posterior with the best averaged, calibrated leave-one-out probabilities; no rows are held out.

    Args:
        embedding: a :class:`kernel_embed.MulticlassEmbedding`.
        objective: of the Gibbs posterior.
        x: inputs.
        y: class numbers.
        powers: the candidates.
        **settings: of :func:`kernel_embed.sample_posterior`, for each candidate; one progress bar shows all.

    Returns:
        ``power``, the best one, its ``posterior``, and ``scores``, the mean negative log of the averaged leave-one-out
        probability of the true class by power.

    Raises:
        TypeError: if an argument is of another type.
        ValueError: if there is no power to try, one is not positive, ``y`` is not one class number for each row, or
            the embedding has a batch shape.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.rand(40, 1, dtype=torch.float64), torch.arange(40) % 2
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> few = dict(num_samples=20, sampler=ke.Laplace(), seed=0)
        >>> list(ke.posteriors.choose_power(embedding, ke.LeaveOneOutRisk(), x, y, **few).scores)
        [1.0, 4.0, 16.0, 64.0]
    """
    x, y = _check_candidates(embedding, x, y, "powers", powers)
    best: PowerChoice | None = None
    scores: dict[float, float] = {}
    with progress_bar(len(powers), "power", settings.get("progress")) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # the summary of the best one has the diagnostics
        for power in powers:
            one: Settings = {**settings, "progress": False, "power": power}
            posterior = sample_posterior(embedding, objective, x, y, **one)
            scores[power] = leave_one_out_score(posterior, y)
            if best is None or scores[power] < scores[best.power]:
                best = PowerChoice(power, scores, posterior)
            bar.update()
    assert best is not None  # there is at least one candidate
    return best


def leave_one_out_score(posterior: MulticlassPosterior, y: Tensor) -> float:
    """−(1/n) Σ log p̄⁽⁻ⁱ⁾(y_i), with p̄⁽⁻ⁱ⁾ the average over draws of their predictions without row i."""
    with torch.no_grad():
        p = posterior.average(lambda conditioned: conditioned.calibrated().leave_one_out())
    return _negative_log_probability(p, y).mean().item()


def _check_candidates(
    embedding: MulticlassEmbedding, x: Tensor, y: Tensor, name: str, values: Sequence[float]
) -> tuple[Tensor, Tensor]:
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise TypeError(f"{name} must be a sequence of numbers, not {values!r}.")
    if not values:
        raise ValueError(f"There are no {name} to try. Give {name}=(1.0, 4.0), for example.")
    if not isinstance(embedding, MulticlassEmbedding):
        raise TypeError(f"The embedding must be a MulticlassEmbedding, not {type(embedding).__name__}.")
    if len(embedding.batch_shape) > 0:
        raise ValueError(f"The embedding has the batch shape {tuple(embedding.batch_shape)}. Use a single kernel.")
    x = check_features(x)
    return x, check_labels(x, y, embedding.num_classes)


def _negative_log_probability(p: Tensor, y: Tensor) -> Tensor:
    """−log p_i(y_i) of rows of probabilities, ``(n,)``."""
    truth = p.gather(-1, y.to(p.device).long().unsqueeze(-1)).squeeze(-1)
    return -truth.clamp_min(SMALLEST_PROBABILITY).log()
