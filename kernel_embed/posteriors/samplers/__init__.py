"""Samplers as values: each draws from the same potential in its own way."""

from .base import Sampler
from .laplace import Laplace
from .nutpie import Nutpie
from .nuts import NUTS
from .smc import SMC
from .svi import SVI

__all__ = ["NUTS", "SMC", "SVI", "Laplace", "Nutpie", "Sampler"]
