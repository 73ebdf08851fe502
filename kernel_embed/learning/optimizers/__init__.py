"""Optimizers for ``fit(optimizer=…)``."""

from ..problem import Optimizer
from ..result import Outcome
from .lbfgs import LBFGS
from .stochastic import Adam, TorchOptimizer

__all__ = ["LBFGS", "Adam", "Optimizer", "Outcome", "TorchOptimizer"]
