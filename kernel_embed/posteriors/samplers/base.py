"""What a sampler is: a value that turns a potential and starting points into draws."""

from __future__ import annotations

import abc
import dataclasses
from typing import ClassVar

from ..draws import Draws
from ..potential import Potential
from ..starts import Plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampler(abc.ABC):
    """A way to draw from a posterior, with its options; give one to ``sample_posterior(…, sampler=…)``.

    A sampler of your own is a subclass with :meth:`sample`: ask ``potential`` for values and gradients, and return
    :class:`~kernel_embed.posteriors.Draws`.

    Example:
        >>> import time, numpy, torch, gpytorch, kernel_embed as ke
        >>> from kernel_embed.posteriors import Sampler, independent_draws
        >>> class AtTheStart(Sampler):
        ...     '''Every draw is where its chain starts.'''
        ...     def sample(self, potential, plan):
        ...         points, count = plan.starts.points, plan.num_samples
        ...         u = torch.from_numpy(numpy.stack(points)).unsqueeze(1).expand(-1, count, -1)
        ...         heights = torch.tensor([-potential.value(point) for point in points])
        ...         log_density = heights.unsqueeze(1).expand(-1, count)
        ...         return independent_draws(potential, u, log_density, time.perf_counter())
        >>> x = torch.linspace(-1, 1, 20, dtype=torch.float64).unsqueeze(-1)
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> posterior = ke.sample_posterior(
        ...     embedding, ke.EmbeddingEvidence(), x, num_samples=3, initial="current", sampler=AtTheStart()
        ... )
        >>> posterior.method, posterior.samples["kernel.lengthscale"].flatten()[:2]
        ('atthestart', tensor([0.6931, 0.6931], dtype=torch.float64))
    """

    uses_starts: ClassVar[bool] = True
    """Whether chains start somewhere; False for a sampler that finds its own way from the prior."""

    uses_warmup: ClassVar[bool] = False
    """Whether there are draws before the first that counts."""

    is_independent: ClassVar[bool] = False
    """Whether draws are independent, so that chains cannot disagree and no warning says so."""

    can_resume: ClassVar[bool] = False
    """Whether it writes its chains to ``plan.checkpoint`` and goes on from there."""

    name: ClassVar[str]
    """What ``posterior.method`` says: the name of the class in lower case, unless the class gives another."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = cls.__name__.lower()

    @abc.abstractmethod
    def sample(self, potential: Potential, plan: Plan) -> Draws:
        """Draw from exp(−U).

        Args:
            potential: U, with ``value``, ``value_and_gradient`` and ``dimension``.
            plan: starts, numbers of draws, seeds, and the bar to be told of progress.
        """
