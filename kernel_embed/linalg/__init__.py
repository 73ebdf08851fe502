"""Regularized systems A = K + ηW⁻¹, made ready once and asked many times: the only place that factorizes."""

from .dense import DenseSystem, factorize, sandwich
from .features import FeatureSystem
from .forms import DenseForm, DistanceForm, QuadraticForm
from .iterative import IterativeSystem, conjugate_gradients
from .shards import Shards
from .small import cholesky_factor, require_finite, whitening
from .system import LinearSystem

__all__ = [
    "DenseForm",
    "DenseSystem",
    "DistanceForm",
    "FeatureSystem",
    "IterativeSystem",
    "LinearSystem",
    "QuadraticForm",
    "Shards",
    "cholesky_factor",
    "conjugate_gradients",
    "factorize",
    "require_finite",
    "sandwich",
    "whitening",
]
