"""Which optimizer ``fit`` uses: the one that is given, or the one whose short options are."""

from __future__ import annotations

import dataclasses
from typing import cast

import torch

from .base import Optimizer
from .lbfgs import LBFGS
from .stochastic import Adam, Factory, TorchOptimizer

OF_LBFGS = ("max_evaluations", "tolerance", "num_restarts")
OF_ADAM = ("batch_size", "num_epochs", "learning_rate")


@dataclasses.dataclass(frozen=True)
class ShortOptions:
    """The common settings of L-BFGS and Adam as ``fit`` takes them; ``None`` is the optimizer's own default."""

    max_evaluations: int | None = None
    tolerance: float | None = None
    num_restarts: int | None = None
    batch_size: int | None = None
    num_epochs: int | None = None
    learning_rate: float | None = None

    def given(self, *names: str) -> list[str]:
        """Those of ``names`` that are not ``None``."""
        return [name for name in names if getattr(self, name) is not None]

    def lbfgs(self) -> LBFGS:
        """L-BFGS with these options."""
        default = LBFGS()
        return LBFGS(
            default.max_evaluations if self.max_evaluations is None else self.max_evaluations,
            default.tolerance if self.tolerance is None else self.tolerance,
            default.num_restarts if self.num_restarts is None else self.num_restarts,
        )

    def adam(self) -> Adam:
        """Adam with these options."""
        default = Adam()
        return Adam(
            default.num_epochs if self.num_epochs is None else self.num_epochs,
            default.learning_rate if self.learning_rate is None else self.learning_rate,
            self.batch_size,
        )


def choose_optimizer(optimizer: Optimizer | Factory | None, short: ShortOptions, from_loader: bool) -> Optimizer:
    """The optimizer that is given; else Adam for its options or a loader, and L-BFGS otherwise.

    Example:
        >>> choose_optimizer(None, ShortOptions(max_evaluations=50), from_loader=False)
        LBFGS(max_evaluations=50, tolerance=1e-05, num_restarts=0, restart_spread=1.0)
        >>> choose_optimizer(None, ShortOptions(batch_size=20), from_loader=False)
        Adam(num_epochs=200, learning_rate=0.1, batch_size=20)
    """
    if optimizer is not None:
        return _as_optimizer(optimizer, short.given(*OF_LBFGS, *OF_ADAM))
    of_lbfgs, of_adam = short.given(*OF_LBFGS), short.given(*OF_ADAM)
    if of_lbfgs and (of_adam or from_loader):
        others = " and ".join(of_adam) or "a loader"
        raise ValueError(
            f"Expected options of one optimizer, got {' and '.join(of_lbfgs)}, of L-BFGS for full batches, together "
            f"with {others}, for Adam. Leave one kind out."
        )
    return short.adam() if of_adam or from_loader else short.lbfgs()


def _as_optimizer(optimizer: Optimizer | Factory, given: list[str]) -> Optimizer:
    if given:
        raise ValueError(
            f"Expected either optimizer or short options, got optimizer={optimizer!r} together with "
            f"{' and '.join(given)}. Give them to the optimizer, as in Adam(batch_size=100)."
        )
    if isinstance(optimizer, Optimizer):
        return optimizer
    if isinstance(optimizer, type) and issubclass(optimizer, Optimizer):
        raise TypeError(f"Expected an optimizer, got its class. Write optimizer={optimizer.__name__}().")
    if isinstance(optimizer, torch.optim.Optimizer) or not callable(optimizer):
        got = repr(optimizer) if isinstance(optimizer, str) else type(optimizer).__name__
        raise TypeError(
            f"Expected an optimizer, such as LBFGS() or Adam(), or a factory that makes one of torch.optim, such as "
            f"lambda p: torch.optim.SGD(p, lr=0.1), got {got}."
        )
    return TorchOptimizer(cast(Factory, optimizer))
