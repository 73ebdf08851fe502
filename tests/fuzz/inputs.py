"""Data, kernels and settings that somebody will pass one day."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from torch import Tensor

N, D, M = 14, 2, 3
NAN, INF = float("nan"), float("inf")
T = TypeVar("T")


class Pick(Protocol):
    """Choose one of several values; the generator of cases decides which."""

    def __call__(self, options: Sequence[T]) -> T: ...


def clean_x(seed: int = 0, n: int = N) -> Tensor:
    return torch.randn(n, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def with_entry(x: Tensor, value: float) -> Tensor:
    x = x.clone()
    x[1, 0] = value
    return x


def with_graph(x: Tensor) -> Tensor:
    return x.clone().requires_grad_() * 1.0


def inference(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return x.clone() + 0.0


USUAL: dict[str, Callable[[Tensor], object]] = {
    "clean": lambda x: x,
    "one row": lambda x: x[:1],
    "two rows": lambda x: x[:2],
    "one column": lambda x: x[:, :1],
    "vector": lambda x: x[:, 0],
    "duplicates": lambda x: x[:1].expand(N, D).clone(),
    "repeated": lambda x: x[torch.arange(N) // 2],
    "constant column": lambda x: torch.cat([x[:, :1], torch.ones(len(x), 1, dtype=x.dtype)], dim=1),
    "not contiguous": lambda x: x.mT.contiguous().mT,
    "strided": lambda x: x.repeat_interleave(2, 0)[::2],
    "float32": lambda x: x.float(),
    "whole numbers": lambda x: (10 * x).long(),
    "booleans": lambda x: x > 0,
    "requires grad": lambda x: x.clone().requires_grad_(),
    "with a graph": with_graph,
    "inference": inference,
    "far": lambda x: x + 1e9,
    "huge": lambda x: x * 1e160,
    "largest": lambda x: x / x.abs().max() * 1.7e308,
    "tiny": lambda x: x * 1e-160,
    "denormal": lambda x: x * 1e-310,
    "zeros": lambda x: torch.zeros_like(x),
    "outlier": lambda x: with_entry(x, 1e15),
    "two clusters": lambda x: x + 1e8 * (torch.arange(len(x)) % 2).unsqueeze(-1),
}
BROKEN: dict[str, Callable[[Tensor], object]] = {
    "nan": lambda x: with_entry(x, NAN),
    "infinite": lambda x: with_entry(x, INF),
    "all nan": lambda x: x * NAN,
    "no rows": lambda x: x[:0],
    "no columns": lambda x: x[:, :0],
    "wide": lambda x: torch.cat([x, x[:, :1]], dim=1),
    "batch": lambda x: x.expand(2, N, D),
    "number": lambda x: torch.tensor(1.0),
    "half": lambda x: x.half(),
    "complex": lambda x: x.to(torch.complex128),
    "sparse": lambda x: x.to_sparse(),
    "sparse rows": lambda x: x.to_sparse_csr(),
    "meta": lambda x: x.to("meta"),
    "nested": lambda x: torch.nested.nested_tensor([x[:3], x[3:5]]),
    "quantized": lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
    "array": lambda x: x.numpy(),
    "list": lambda x: x.tolist(),
    "nothing": lambda x: None,
    "text": lambda x: "x",
    "objects": lambda x: np.array([["a", None]] * N, dtype=object),
    "number of Python": lambda x: 3.0,
    "generator": lambda x: (row for row in x),
}
POINTS = USUAL | BROKEN

LABELS: dict[str, Callable[[Tensor], object]] = {
    "clean": lambda y: y,
    "one class": lambda y: torch.zeros_like(y),
    "two classes": lambda y: y % 2,
    "float": lambda y: y.double(),
    "column": lambda y: y.unsqueeze(-1),
    "fractions": lambda y: y + 0.5,
    "nan": lambda y: y * NAN,
    "infinite": lambda y: y.double() + INF,
    "negative": lambda y: y - 1,
    "too many": lambda y: y + 1,
    "enormous": lambda y: y.double() * 1e300,
    "short": lambda y: y[:-1],
    "empty": lambda y: y[:0],
    "matrix": lambda y: y.expand(N, N),
    "number": lambda y: torch.tensor(1),
    "complex": lambda y: y.to(torch.complex64),
    "booleans": lambda y: y > 0,
    "sparse": lambda y: y.to_sparse(),
    "meta": lambda y: y.to("meta"),
    "requires grad": lambda y: y.double().requires_grad_(),
    "inference": inference,
    "array": lambda y: y.numpy(),
    "list": lambda y: y.tolist(),
    "words": lambda y: ["abc"[i] for i in y.tolist()],
    "nothing": lambda y: None,
    "text": lambda y: "y",
}


class Odd(Kernel):
    """A kernel of one's own with a fault."""

    has_lengthscale = True

    def __init__(self, fault: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.fault = fault

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object) -> Tensor:
        if diag:
            return self.fault(torch.ones(x1.shape[:-1], dtype=x1.dtype))
        return self.fault(torch.exp(-0.5 * (x1.unsqueeze(-2) - x2.unsqueeze(-3)).square().sum(-1)))


def raising(K: Tensor) -> Tensor:
    raise RuntimeError("Expected a kernel that works, got one that does not. Mend it.")


def with_lengthscale(kernel: Kernel, value: float) -> Kernel:
    kernel = kernel.double()
    kernel.register_constraint("raw_lengthscale", Positive())
    kernel.initialize(lengthscale=value)
    return kernel


def set_nan(kernel: Kernel) -> Kernel:
    with torch.no_grad():
        kernel.raw_lengthscale.fill_(NAN)
    return kernel


GOOD_KERNELS: dict[str, Callable[[], object]] = {
    "rbf": lambda: RBFKernel().double(),
    "ard": lambda: RBFKernel(ard_num_dims=D).double(),
    "matern 1/2": lambda: MaternKernel(0.5).double(),
    "matern 5/2": lambda: ScaleKernel(MaternKernel(2.5)).double(),
    "rational": lambda: RQKernel().double(),
    "linear": lambda: LinearKernel().double(),
    "polynomial": lambda: PolynomialKernel(2).double(),
    "periodic": lambda: PeriodicKernel().double(),
    "sum": lambda: (RBFKernel() + LinearKernel()).double(),
    "product": lambda: (RBFKernel(active_dims=[0]) * RBFKernel(active_dims=[1])).double(),
    "float32": lambda: RBFKernel(),
    "short": lambda: with_lengthscale(RBFKernel(), 1e-12),
    "long": lambda: with_lengthscale(RBFKernel(), 1e12),
    "shortest": lambda: with_lengthscale(MaternKernel(1.5), 1e-200),
    "batch": lambda: RBFKernel(batch_shape=torch.Size([2])).double(),
}
BAD_KERNELS: dict[str, Callable[[], object]] = {
    "wrong width": lambda: RBFKernel(ard_num_dims=D + 1).double(),
    "columns that are not there": lambda: RBFKernel(active_dims=[5]).double(),
    "nan": lambda: Odd(lambda K: K * NAN),
    "nan lengthscale": lambda: set_nan(RBFKernel().double()),
    "infinite": lambda: Odd(lambda K: K * INF),
    "negative": lambda: Odd(lambda K: -K),
    "zero": lambda: Odd(lambda K: 0.0 * K),
    "asymmetric": lambda: Odd(lambda K: K * torch.linspace(0.5, 1.5, K.shape[-1], dtype=K.dtype)),
    "wrong shape": lambda: Odd(lambda K: K[..., :-1]),
    "raising": lambda: Odd(raising),
    "class": lambda: RBFKernel,
    "nothing": lambda: None,
    "text": lambda: "rbf",
    "function": lambda: lambda a, b: a @ b.mT,
    "module": lambda: torch.nn.Identity(),
    "mean": lambda: gpytorch.means.ZeroMean(),
}
KERNELS = GOOD_KERNELS | BAD_KERNELS

NUMBERS = (0, -1, 0.0, 1.5, NAN, INF, 1e-300, 1e300, 2**70, True, None, "1", [1.0])
SEEDS = (0, None, 2**64, -1, 1.5, True, "0", NAN)


class Inputs:
    """What a case is made of; at most a few things at once are broken, so that each fault is met alone, too."""

    def __init__(self, pick: Pick) -> None:
        self.pick = pick
        self.broken = pick(("nothing", "x", "y", "kernel", "query", "settings", "x", "kernel", "all"))
        self.chosen: dict[str, object] = {"broken": self.broken}

    def _choose(self, name: str, part: str, usual: Sequence[str], every: Sequence[str]) -> str:
        choice = self.pick(tuple(every if self.broken in (part, "all") else usual))
        self.chosen[name] = choice
        return choice

    def x(self, name: str = "x", seed: int = 0) -> object:
        """Points ``(N, D)``."""
        choice = self._choose(name, "x" if name == "x" else "query", ("clean",), tuple(POINTS))
        return POINTS[choice](clean_x(seed))

    def labels(self) -> object:
        """Class numbers of three classes."""
        return LABELS[self._choose("y", "y", ("clean",), tuple(LABELS))](torch.arange(N) % M)

    def targets(self) -> object:
        """Real targets."""
        y = torch.linspace(-1, 1, N, dtype=torch.float64)
        choice = self._choose("y", "y", ("clean",), tuple(POINTS))
        return y if choice == "clean" else POINTS[choice](torch.stack([y, y.square()], dim=1))

    def kernel(self) -> object:
        """A kernel."""
        return KERNELS[self._choose("kernel", "kernel", ("rbf", "rbf", "ard"), tuple(KERNELS))]()

    def setting(self, name: str, usual: object, others: Sequence[object] = NUMBERS) -> object:
        """``usual``, or something else; a call with many settings has most of them as usual, to get past its checks."""
        odd = self.broken in ("settings", "all") and self.pick((False, False, True))
        value = self.pick(tuple(others)) if odd else usual
        self.chosen[name] = value
        return value
