"""What ``fit`` returns."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class FitResult:
    """What ``fit`` did; the embedding itself holds the learned parameters.

    Attributes:
        value: the lowest objective met, priors included; the embedding's parameters are those that reached it.
        history: one record for each evaluation (each epoch with mini-batches): ``start``, ``value``, and every term.
        num_evaluations: evaluations of objective and gradient.
        converged: whether the optimizer met its tolerance.
        message: how it ended, in words.
        seconds: wall-clock time.
        fixed: parameters held fixed because the objective cannot identify them.
        interrupted: whether Ctrl-C ended it.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> result = ke.fit(embedding, ke.LeaveOneOutRisk(), torch.rand(20, 1), torch.arange(20) % 2, max_evaluations=3)
        >>> len(result.history) == result.num_evaluations, sorted(result.history[0])[0]
        (True, 'LeaveOneOutRisk(epsilon=0.001)')
    """

    value: float
    history: list[dict[str, float]]
    num_evaluations: int
    converged: bool
    message: str
    seconds: float
    fixed: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def terms(self) -> dict[str, float]:
        """Every term of the objective at the best point; empty where nothing was evaluated before an interruption."""
        if not self.history:
            return {}
        best = min(self.history, key=lambda record: record["value"])
        return {name: value for name, value in best.items() if name not in ("start", "value")}

    def __repr__(self) -> str:
        """One line; the history is left out."""
        fixed = f", fixed={self.fixed}" if self.fixed else ""
        return (
            f"FitResult(value={self.value:.6g}, converged={self.converged}, num_evaluations={self.num_evaluations}, "
            f"message={self.message!r}, seconds={self.seconds:.3g}{fixed})"
        )
