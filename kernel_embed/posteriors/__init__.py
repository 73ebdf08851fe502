"""Posteriors over hyperparameters: priors, potential, samplers, and the posterior object."""

from ..learning.priors import default_prior
from .archive import load_posterior
from .draws import Draws
from .gaussian import SVI, Laplace
from .gibbs import PowerChoice, TemperatureChoice, choose_power, choose_temperature
from .nutpie import Nutpie
from .nuts import NUTS
from .posterior import KernelDraws, Posterior
from .potential import Potential
from .predictors import (
    ConditionalPosterior,
    EntropyParts,
    FunctionPosterior,
    GaussianMixture,
    MeanPosterior,
    MulticlassPosterior,
)
from .priors import PosteriorWarning
from .pyro_model import pyro_model
from .sample import sample_posterior
from .sampler import Plan, Sampler
from .smc import SMC

__all__ = [
    "NUTS", "SMC", "SVI", "ConditionalPosterior", "Draws", "EntropyParts", "FunctionPosterior", "GaussianMixture",
    "KernelDraws", "Laplace", "MeanPosterior", "MulticlassPosterior", "Nutpie", "Plan", "Posterior", "PosteriorWarning",
    "Potential", "PowerChoice", "Sampler", "TemperatureChoice", "choose_power", "choose_temperature", "default_prior",
    "load_posterior", "pyro_model", "sample_posterior",
]  # fmt: skip
