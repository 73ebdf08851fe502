"""Posteriors over hyperparameters: priors, potential, samplers, and the posterior object."""

from ..learning.priors import default_prior
from .archive import load_posterior
from .gibbs import PowerChoice, TemperatureChoice, choose_power, choose_temperature
from .mixture import GaussianMixture
from .posterior import KernelDraws, Posterior
from .potential import Potential
from .predictors import ConditionalPosterior, EntropyParts, MeanPosterior, MulticlassPosterior, WitnessPosterior
from .priors import PosteriorWarning
from .pyro_model import pyro_model
from .sample import sample_posterior
from .sampler import Draws, Plan, Sampler
from .samplers.gaussian import SVI, Laplace
from .samplers.nutpie import Nutpie
from .samplers.nuts import NUTS
from .samplers.smc import SMC

__all__ = [
    "NUTS",
    "SMC",
    "SVI",
    "ConditionalPosterior",
    "Draws",
    "EntropyParts",
    "GaussianMixture",
    "KernelDraws",
    "Laplace",
    "MeanPosterior",
    "MulticlassPosterior",
    "Nutpie",
    "Plan",
    "Posterior",
    "PosteriorWarning",
    "Potential",
    "PowerChoice",
    "Sampler",
    "TemperatureChoice",
    "WitnessPosterior",
    "choose_power",
    "choose_temperature",
    "default_prior",
    "load_posterior",
    "pyro_model",
    "sample_posterior",
]
