"""Posteriors over hyperparameters: priors, potential, samplers, and the posterior object."""

from .answers import ConditionalPosterior, EntropyParts, GaussianMixture, MeanPosterior, MulticlassPosterior
from .embedded import pyro_model
from .posterior import Posterior
from .sample import sample_posterior
from .sites import PosteriorWarning, default_prior
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
