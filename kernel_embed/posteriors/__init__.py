"""Posteriors over hyperparameters: priors, potential, samplers, and the posterior object."""

from .draws import Draws, KernelDraws, independent_draws
from .mixture import GaussianMixture
from .posterior import Posterior
from .potential import Potential
from .power import SharpnessChoice, choose_power
from .predictors import ConditionalPosterior, EntropyParts, MeanPosterior, MulticlassPosterior, WitnessPosterior
from .priors import PosteriorWarning, default_prior
from .pyro_model import pyro_model
from .sample import sample_posterior
from .samplers import NUTS, SMC, SVI, Laplace, Nutpie, Sampler
from .starts import Plan, Starts
from .storage import load_posterior
from .temperature import TemperatureChoice, choose_temperature

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
    "Sampler",
    "SharpnessChoice",
    "Starts",
    "TemperatureChoice",
    "WitnessPosterior",
    "choose_power",
    "choose_temperature",
    "default_prior",
    "independent_draws",
    "load_posterior",
    "pyro_model",
    "sample_posterior",
]
