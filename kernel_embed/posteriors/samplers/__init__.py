"""Samplers as values: each draws from the same potential in its own way."""

from .gaussian import SVI, Laplace
from .nutpie import Nutpie
from .nuts import NUTS
from .smc import SMC

__all__ = ["NUTS", "SMC", "SVI", "Laplace", "Nutpie"]
