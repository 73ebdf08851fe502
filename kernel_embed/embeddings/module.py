"""``gpytorch.Module`` with types: GPyTorch ships none, and a subclass of what has no type passes for any class."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    import torch
    from gpytorch.constraints import Interval
    from gpytorch.priors import Prior
    from torch import Tensor
    from typing_extensions import Self

    Closure = Callable[[Any], Tensor]
    Setter = Callable[[Any, Tensor], None]

    class Module(torch.nn.Module):
        """What embeddings and their callers use of ``gpytorch.Module``."""

        def initialize(self, **values: object) -> Self:
            """Set parameters by name."""

        def constraint_for_parameter_name(self, name: str) -> Interval | None:
            """The constraint on the raw parameter of this name."""

        def register_constraint(self, name: str, constraint: Interval, replace: bool = True) -> None:
            """Put a constraint on a raw parameter."""

        def register_prior(
            self, name: str, prior: Prior, closure: str | Closure, setting_closure: Setter | None = None
        ) -> None:
            """Put a prior on what ``closure`` returns."""

        def pyro_sample_from_prior(self) -> Self:
            """A copy whose parameters are Pyro's samples."""

        def named_priors(self) -> Iterator[tuple[str, Module, Prior, Closure, Setter | None]]:
            """Every prior, with the module it is registered on."""

else:
    from gpytorch import Module

__all__ = ["Module"]
