"""Regularized systems A = K + ηW⁻¹, made ready once and asked many times: the only place that factorizes."""

from .dense import DenseSystem, sandwich
from .factor import cholesky_factor, factorize, whitening
from .features import FeatureSystem
from .iterative import IterativeSystem, conjugate_gradients
from .shards import Shards
from .system import LinearSystem

__all__ = [
    "DenseSystem",
    "FeatureSystem",
    "IterativeSystem",
    "LinearSystem",
    "Shards",
    "cholesky_factor",
    "conjugate_gradients",
    "factorize",
    "sandwich",
    "whitening",
]
