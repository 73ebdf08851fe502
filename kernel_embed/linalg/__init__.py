"""Regularized systems A = K + ηW⁻¹, factorized once and used many times."""

from .dense import DenseSystem, extended, factorize
from .factorization import sandwich
from .features import FeatureSystem
from .forms import DenseForm, DistanceForm, QuadraticForm
from .iterative import IterativeSystem
from .precision import require_finite, single_precision, whitening
from .regression import Groups, Regression, Units, repeated_rows
from .ridge_path import RidgePath
from .system import LinearSystem, Shards

__all__ = [
    "DenseForm",
    "DenseSystem",
    "DistanceForm",
    "FeatureSystem",
    "Groups",
    "IterativeSystem",
    "LinearSystem",
    "QuadraticForm",
    "Regression",
    "RidgePath",
    "Shards",
    "Units",
    "extended",
    "factorize",
    "repeated_rows",
    "require_finite",
    "sandwich",
    "single_precision",
    "whitening",
]
