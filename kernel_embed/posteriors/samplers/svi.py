"""Stochastic variational inference: a Gaussian guide of Pyro's in the raw parameters, fitted to the same potential."""

from __future__ import annotations

import dataclasses
import time
from typing import ClassVar

import pyro
import pyro.infer
import torch
from pyro.distributions import Normal
from pyro.infer.autoguide import AutoContinuous, AutoDiagonalNormal, AutoMultivariateNormal
from pyro.infer.autoguide.initialization import init_to_value
from pyro.optim import ClippedAdam
from torch import Tensor

from ...progress import ProgressBar
from ...validation import check_count, check_number, check_setting
from ..draws import Draws, independent_draws
from ..potential import SITE, Potential
from ..starts import Plan
from .base import Sampler
from .laplace import highest_mode
from .nuts import DENSE_DIMENSIONS


@dataclasses.dataclass(frozen=True, kw_only=True)
class SVI(Sampler):
    """A guide of Pyro's fitted by Adam, starting at the highest mode: for many parameters.

    Args:
        num_steps: of Adam.
        learning_rate: of Adam; it falls to a tenth.
        guide: a class of ``pyro.infer.autoguide``; by default a Gaussian with dense covariance up to twenty parameters
            and with a diagonal one above.

    Raises:
        TypeError: if a setting is not a number.
        ValueError: if ``num_steps`` is below 1, or ``learning_rate`` not positive.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> x = torch.randn(15, 1, dtype=torch.float64)
        >>> sampler = ke.SVI(num_steps=20)
        >>> posterior = ke.sample_posterior(embedding, ke.EmbeddingEvidence(), x, num_samples=20, sampler=sampler)
        >>> posterior.method
        'svi'
    """

    num_steps: int = 500
    learning_rate: float = 0.05
    guide: type[AutoContinuous] | None = None

    is_independent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("num_steps", self.num_steps)
        check_setting(
            "learning_rate", self.learning_rate, check_number("learning_rate", self.learning_rate) > 0, "above 0"
        )

    def sample(self, potential: Potential, plan: Plan) -> Draws:
        """Independent draws of the guide, as many for each seed."""
        started = time.perf_counter()
        mode = torch.from_numpy(highest_mode(potential, plan.starts.points))
        with pyro.get_param_store().scope(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(plan.seeds[0])
            guide, losses = self.fitted(potential, mode, plan.bar)
            found = guide.get_posterior()
            u = found.sample((len(plan.seeds), plan.num_samples)).detach()
            log_density = found.log_prob(u).detach()
        if log_density.dim() > 2:
            log_density = log_density.sum(-1)
        return independent_draws(potential, u, log_density, started, is_approximate=True, details={"losses": losses})

    def fitted(self, potential: Potential, mode: Tensor, bar: ProgressBar) -> tuple[AutoContinuous, list[float]]:
        """The guide fitted from ``mode``, in the parameter store as it is, and the loss at every step."""

        def model() -> None:
            flat = Normal(torch.zeros_like(mode), torch.ones_like(mode)).mask(False).to_event(1)
            u = pyro.sample(SITE, flat)
            pyro.factor("log density", -potential({SITE: u}))

        default = AutoMultivariateNormal if len(mode) <= DENSE_DIMENSIONS else AutoDiagonalNormal
        guide = (self.guide or default)(model, init_loc_fn=init_to_value(values={SITE: mode}), init_scale=0.1)
        rates = {"lr": self.learning_rate, "lrd": 0.1 ** (1.0 / self.num_steps)}
        search = pyro.infer.SVI(model, guide, ClippedAdam(rates), pyro.infer.Trace_ELBO())
        losses: list[float] = []
        bar.reset(self.num_steps)
        for _ in range(self.num_steps):
            losses.append(search.step())
            bar.update()
        return guide, losses
