r"""How far to trust the draws of a Gibbs posterior beside its mode: a rule that holds no data out.

.. math::
    \hat s = \arg\min_s -\frac1n \sum_{i=1}^n \log \frac1S \sum_{j=1}^S p_{\theta_j}^{(-i)}(y_i \mid x_i), \qquad
    \theta_j \sim \big( p(\theta)\, e^{-c q(\theta)} \big)^s

:math:`p^{(-i)}` are the probabilities of draw j without row i, in closed form. The draws have seen row i, so a
temperature may not be chosen so: a higher one takes weight from the priors, and the score rewards the overfitting that
follows. The power s leaves the mode where it is and decides only how far from it the draws may be. As s grows, the
average becomes the point estimate.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from ..embeddings import ConditionedMulticlass, MulticlassEmbedding
from ..objectives import Objective
from ..progress import progress_bar
from .predictors import MulticlassPosterior
from .priors import PosteriorWarning
from .sample import Settings, sample_posterior
from .temperature import check_choice, negative_log_probability


class SharpnessChoice(NamedTuple):
    """The chosen ``power``, the ``scores`` of all, and the ``posterior`` of the chosen one.

    Attributes:
        power: the one with the lowest score.
        scores: by power, the mean negative log of the averaged leave-one-out probability of the right class.
        posterior: sampled with it.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.linspace(0, 1, 20, dtype=torch.float64).unsqueeze(-1), torch.arange(20) // 10
        >>> embedding, risk = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), 2), ke.LeaveOneOutRisk()
        >>> few = dict(num_samples=10, sampler=ke.Laplace())
        >>> choice = ke.posteriors.choose_power(embedding, risk, x, y, sharpnesses=(1.0, 4.0), seed=0, **few)
        >>> choice.posterior.potential.power == choice.power
        True
    """

    power: float
    scores: dict[float, float]
    posterior: MulticlassPosterior


def choose_power(
    embedding: MulticlassEmbedding,
    objective: Objective[ConditionedMulticlass],
    x: Tensor,
    y: Tensor,
    *,
    sharpnesses: Sequence[float] = (1.0, 4.0, 16.0, 64.0),
    **settings: Unpack[Settings],
) -> SharpnessChoice:
    """The posterior whose averaged, calibrated leave-one-out probabilities are best; all rows take part.

    Args:
        embedding: a :class:`kernel_embed.MulticlassEmbedding`.
        objective: of the Gibbs posterior.
        x: inputs.
        y: class numbers.
        sharpnesses: to try.
        **settings: of :func:`kernel_embed.sample_posterior`, for each of them; one progress bar is that of all.

    Returns:
        The choice, the scores, and the posterior.

    Raises:
        TypeError: if ``embedding`` is not a :class:`~kernel_embed.MulticlassEmbedding`, ``sharpnesses`` no sequence, or
            ``x`` not a tensor of real numbers.
        ValueError: if there is no power to try, one is not positive, ``y`` is not one class number for each row, or
            the embedding has a batch shape.

    See also:
        :func:`kernel_embed.posteriors.choose_temperature`, by cross-validation.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
        >>> y = (torch.sin(40 * x.squeeze(-1)) + 4 * x.squeeze(-1) > 2).long()
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> few = dict(num_samples=20, sampler=ke.Laplace(), seed=0)
        >>> choice = ke.posteriors.choose_power(embedding, ke.LeaveOneOutRisk(), x, y, **few)
        >>> choice.power == min(choice.scores, key=choice.scores.get)
        True
    """
    x, y = check_choice(embedding, x, y, "sharpnesses", sharpnesses)
    best: SharpnessChoice | None = None
    scores: dict[float, float] = {}
    shown = settings.get("progress")
    settings = {**settings, "progress": False}
    with progress_bar(len(sharpnesses), "power", shown) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # said of the chosen one by its summary
        for power in sharpnesses:
            settings["power"] = power
            posterior = sample_posterior(embedding, objective, x, y, **settings)
            scores[power] = leave_one_out_score(posterior, y)
            if best is None or scores[power] < scores[best.power]:
                best = SharpnessChoice(power, scores, posterior)
            bar.update()
    assert best is not None  # there was one to try
    return best


def leave_one_out_score(posterior: MulticlassPosterior, y: Tensor) -> float:
    """−(1/n) Σ log p̄⁽⁻ⁱ⁾(y_i), p̄ averaged over draws that have seen row i, each draw's answer has not."""

    def question(conditioned: ConditionedMulticlass) -> Tensor:
        return conditioned.calibrated().leave_one_out()

    with torch.no_grad():
        p = posterior.weighed(posterior.each(question))
    return negative_log_probability(p, y).mean().item()
