"""Short chains from the prior over kernels of five kinds: whether any of them ends in an error."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, PolynomialKernel, RBFKernel, ScaleKernel, SpectralMixtureKernel
from gpytorch.priors import GammaPrior, LogNormalPrior
from torch import Tensor

from ...embeddings import ConditionedMulticlass, MulticlassEmbedding
from ...kernels import FeatureKernel
from ...objectives import ConditionalEvidence, LeaveOneOutRisk, Objective, RademacherComplexity, default_objective
from ...posteriors import NUTS, PosteriorWarning, sample_posterior
from ...results import Record
from .cases import OURS, Call, Case, Scope

PART = "chains from the prior"


def kinds() -> dict[str, Callable[[], Kernel]]:
    """Kernels of five kinds over the plane."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)).double()
    return {
        "rbf": lambda: ScaleKernel(RBFKernel(ard_num_dims=2, lengthscale_prior=GammaPrior(1.0, 1.0))),
        "matern": lambda: MaternKernel(0.5, lengthscale_prior=LogNormalPrior(0.0, 3.0)),
        "spectral mixture": lambda: SpectralMixtureKernel(3, ard_num_dims=2),
        "polynomial": lambda: ScaleKernel(PolynomialKernel(4)),
        "deep": lambda: FeatureKernel(network, RBFKernel()),
    }


def problem() -> tuple[Tensor, Tensor]:
    """Twenty-five points in the plane with two classes."""
    generator = np.random.RandomState(0)
    x = torch.as_tensor(generator.randn(25, 2))
    return x, (x[:, 0] + 0.5 * torch.as_tensor(generator.randn(25)) > 0).long()


def _chains(count: int) -> Call:
    x, y = problem()
    makers = list(kinds().values())
    objectives: list[Objective[ConditionedMulticlass]] = [
        ConditionalEvidence(),
        LeaveOneOutRisk() + RademacherComplexity("4e/n"),
        default_objective(),
    ]

    def call() -> Record:
        refused = diverged = 0
        for number in range(count):
            make, objective = makers[number % len(makers)], objectives[(number // len(makers)) % len(objectives)]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PosteriorWarning)
                posterior = sample_posterior(
                    MulticlassEmbedding(make().double(), 2), objective, x, y, num_samples=4, warmup_steps=6,
                    num_chains=1, seed=number, sampler=NUTS(max_tree_depth=4, parallel=False), progress=False,
                )  # fmt: skip
            if not torch.isfinite(posterior.draws.u).all():
                raise ArithmeticError(f"Expected finite draws of every chain, got others in chain {number}. Report it.")
            refused, diverged = refused + posterior.draws.num_refused, diverged + posterior.num_divergences
        return {"num_refused": refused, "num_divergences": diverged}

    return call


def cases(scope: Scope) -> Iterator[Case]:
    """Two hundred short chains from the prior, over five kinds of kernels."""
    count = 5 if scope.quick else 200
    yield Case(PART, OURS, count, partial(_chains, count))
