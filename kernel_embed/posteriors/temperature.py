r"""Which temperature a Gibbs posterior deserves: that whose averaged classifier does best on data it has not seen.

exp(−n · temperature · q) is a likelihood only where q is the mean negative log likelihood of a model. The cross-entropy
nearly is one at temperature 1; the leave-one-out one is the pseudo-likelihood of the sample; with a complexity term
added, nothing but the data can say how far to trust it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..embeddings import ConditionedMulticlass, MulticlassEmbedding
from ..objectives import Objective
from ..objectives.risk import permutation
from ..progress import progress_bar
from ..validation import check_count, check_features, check_labels, check_seed
from .priors import PosteriorWarning
from .sample import sample_posterior
from .samplers.base import Sampler
from .samplers.laplace import Laplace
from .starts import Initial

SMALLEST_PROBABILITY = 1e-15


class TemperatureChoice(NamedTuple):
    """The chosen ``temperature``, and the negative log probability of held-out labels at each one tried, ``risks``.

    Attributes:
        temperature: the one with the lowest risk.
        risks: by temperature.

    Example:
        >>> from kernel_embed.posteriors import TemperatureChoice
        >>> temperature, risks = TemperatureChoice(1.0, {0.1: 0.52, 1.0: 0.48})
        >>> risks[temperature]
        0.48
    """

    temperature: float
    risks: dict[float, float]


def choose_temperature(
    embedding: MulticlassEmbedding,
    objective: Objective[ConditionedMulticlass],
    x: Tensor,
    y: Tensor,
    *,
    temperatures: Sequence[float] = (0.1, 0.3, 1.0, 3.0, 10.0),
    num_folds: int = 5,
    calibrated: bool = False,
    sampler: Sampler | None = None,
    num_samples: int = 50,
    warmup_steps: int = 500,
    seed: int = 0,
    initial: Initial = "prior",
    progress: bool | None = None,
) -> TemperatureChoice:
    """The temperature with the lowest cross-validated risk of the averaged probabilities, for classifiers.

    Args:
        embedding: a :class:`kernel_embed.MulticlassEmbedding`.
        objective: of the Gibbs posterior.
        x: inputs.
        y: class numbers.
        temperatures: to try.
        num_folds: of the cross-validation.
        calibrated: judge the calibrated probabilities.
        sampler: the Laplace approximation by default, which is fast and near enough to choose by.
        num_samples: draws of each posterior's two chains.
        warmup_steps: before them, for samplers that need any.
        seed: of folds and draws.
        initial: where chains start; see :func:`kernel_embed.sample_posterior`.
        progress: show a progress bar; by default on a terminal or in a notebook.

    Returns:
        The choice, and the risk of each temperature.

    Raises:
        TypeError: if ``embedding`` is not a :class:`~kernel_embed.MulticlassEmbedding`, ``temperatures`` no sequence,
            or ``x`` not a tensor of real numbers.
        ValueError: if there is no temperature, there are fewer than two folds or more than rows, ``y`` is not one
            class number for each row, or the embedding has a batch shape.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
        >>> y = (torch.sin(40 * x.squeeze(-1)) + 4 * x.squeeze(-1) > 2).long()
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> objective, choices = ke.LeaveOneOutRisk(), (0.01, 1.0)
        >>> choice = ke.posteriors.choose_temperature(embedding, objective, x, y, temperatures=choices, num_folds=3)
        >>> choice.temperature == min(choice.risks, key=choice.risks.get)
        True
    """
    if check_count("num_folds", num_folds, 0) < 2:
        raise ValueError(f"Expected at least 2 folds, got {num_folds}. Give num_folds=5, say.")
    x, y = check_choice(embedding, x, y, "temperatures", temperatures)
    sampler = Laplace() if sampler is None else sampler
    if num_folds > x.shape[-2]:
        raise ValueError(f"Expected at most as many folds as rows ({x.shape[-2]}), got {num_folds}. Take fewer.")
    check_seed(seed)
    risks = dict.fromkeys(temperatures, 0.0)
    folds = permutation(x.shape[-2], seed).tensor_split(num_folds)
    pairs = [(fold, temperature) for fold in folds for temperature in temperatures]
    with progress_bar(len(pairs), "temperatures", progress) as bar:
        for fold, temperature in pairs:
            rest = torch.ones(x.shape[-2], dtype=torch.bool)
            rest[fold] = False
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PosteriorWarning)
                posterior = sample_posterior(
                    embedding, objective, x[rest], y[rest], num_samples=num_samples, warmup_steps=warmup_steps,
                    num_chains=2, seed=seed, sampler=sampler, temperature=temperature, initial=initial, progress=False,
                )  # fmt: skip
            risk = negative_log_probability(posterior.probabilities(x[fold], calibrated), y[fold])
            risks[temperature] += risk.sum().item() / x.shape[-2]
            bar.update()
    return TemperatureChoice(min(risks, key=lambda t: risks[t]), risks)


def check_choice(
    embedding: MulticlassEmbedding, x: Tensor, y: Tensor, name: str, values: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """The data, where ``values`` can be tried on them with a classifier of one kernel."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise TypeError(f"Expected {name} as a sequence of numbers, got {values!r}. Give a list.")
    if not values:
        raise ValueError(f"Expected {name} to try, got none. Give {name}=(1.0, 4.0), say.")
    if not isinstance(embedding, MulticlassEmbedding):
        raise TypeError(f"Expected a MulticlassEmbedding, got {type(embedding).__name__}. Give one.")
    if len(embedding.batch_shape) > 0:
        raise ValueError(
            f"Expected an embedding without batch shape, got {tuple(embedding.batch_shape)}. Take one kernel."
        )
    x = check_features(x)
    return x, check_labels(x, y, embedding.num_classes)


def negative_log_probability(p: Tensor, y: Tensor) -> Tensor:
    """−log p_i(y_i) of rows of probabilities, ``(n,)``."""
    truth = p.gather(-1, y.to(p.device).long().unsqueeze(-1)).squeeze(-1)
    return -truth.clamp_min(SMALLEST_PROBABILITY).log()
