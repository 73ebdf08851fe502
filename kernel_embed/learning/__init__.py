"""Learning: minimise an objective over the parameters of an embedding."""

from .fit import FitResult, fit

__all__ = ["FitResult", "fit"]
