"""Regularized systems A = K + ηW⁻¹, factorized once and used many times."""

from .cholesky import extended, require_finite, whitening
from .dense import DenseSystem, factorize, single_precision
from .features import FeatureSystem
from .forms import DenseForm, DistanceForm, QuadraticForm
from .iterative import IterativeSystem, conjugate_gradients
from .products import sandwich
from .ridge_path import RidgePath
from .system import LinearSystem, Shards
from .units import Groups, Units, repeated_rows

__all__ = [
    "DenseForm",
    "DenseSystem",
    "DistanceForm",
    "FeatureSystem",
    "Groups",
    "IterativeSystem",
    "LinearSystem",
    "QuadraticForm",
    "RidgePath",
    "Shards",
    "Units",
    "conjugate_gradients",
    "extended",
    "factorize",
    "repeated_rows",
    "require_finite",
    "sandwich",
    "single_precision",
    "whitening",
]
