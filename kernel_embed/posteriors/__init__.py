"""Posteriors over hyperparameters: priors, potential, samplers, and the posterior object."""

from .answers import ConditionalPosterior, EntropyParts, GaussianMixture, MeanPosterior, MulticlassPosterior
from .posterior import Posterior
from .priors import PosteriorWarning, default_prior
from .pyro_model import pyro_model
from .sample import sample_posterior
from .storage import load_posterior
from .temperature import TemperatureChoice, choose_temperature

__all__ = [
    "ConditionalPosterior",
    "EntropyParts",
    "GaussianMixture",
    "MeanPosterior",
    "MulticlassPosterior",
    "Posterior",
    "PosteriorWarning",
    "TemperatureChoice",
    "choose_temperature",
    "default_prior",
    "load_posterior",
    "pyro_model",
    "sample_posterior",
]
