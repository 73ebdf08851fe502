"""Data, kernels and settings that somebody will pass one day."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

import kernel_embed as ke

N, D, M = 14, 2, 3
NAN, INF = float("nan"), float("inf")
T = TypeVar("T")


def clean_x(seed: int = 0, n: int = N) -> Tensor:
    return torch.randn(n, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


LINE = torch.linspace(-1, 1, N, dtype=torch.float64)


def with_entry(x: Tensor, value: float) -> Tensor:
    x = x.clone()
    x[1, 0] = value
    return x


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
    "with a graph": lambda x: x.clone().requires_grad_() * 1.0,
    "far": lambda x: x + 1e9,
    "huge": lambda x: x * 1e160,
    "largest": lambda x: x / x.abs().max() * 1.7e308,
    "tiny": lambda x: x * 1e-160,
    "denormal": lambda x: x * 1e-310,
    "zeros": lambda x: torch.zeros_like(x),
    "outlier": lambda x: with_entry(x, 1e15),
    "two clusters": lambda x: x + 1e8 * (torch.arange(len(x)) % 2).unsqueeze(-1),
}
OTHER_KINDS: dict[str, Callable[[Tensor], object]] = {
    "complex": lambda t: t.to(torch.complex128),
    "sparse": lambda t: t.to_sparse(),
    "meta": lambda t: t.to("meta"),
    "requires grad": lambda t: t.double().requires_grad_(),
    "inference": inference,
    "booleans": lambda t: t > 0,
    "number": lambda t: torch.tensor(1),
    "array": lambda t: t.numpy(),
    "list": lambda t: t.tolist(),
    "nothing": lambda t: None,
    "text": lambda t: "x",
}
BROKEN: dict[str, Callable[[Tensor], object]] = OTHER_KINDS | {
    "nan": lambda x: with_entry(x, NAN),
    "infinite": lambda x: with_entry(x, INF),
    "all nan": lambda x: x * NAN,
    "no rows": lambda x: x[:0],
    "no columns": lambda x: x[:, :0],
    "wide": lambda x: torch.cat([x, x[:, :1]], dim=1),
    "batch": lambda x: x.expand(2, N, D),
    "half": lambda x: x.half(),
    "sparse rows": lambda x: x.to_sparse_csr(),
    "nested": lambda x: torch.nested.nested_tensor([x[:3], x[3:5]]),
    "quantized": lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
    "objects": lambda x: np.array([["a", None]] * N, dtype=object),
    "number of Python": lambda x: 3.0,
    "generator": lambda x: (row for row in x),
}
POINTS = USUAL | BROKEN

LABELS: dict[str, Callable[[Tensor], object]] = OTHER_KINDS | {
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
    "words": lambda y: ["abc"[i] for i in y.tolist()],
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
    "rational": lambda: gpytorch.kernels.RQKernel().double(),
    "linear": lambda: LinearKernel().double(),
    "polynomial": lambda: gpytorch.kernels.PolynomialKernel(2).double(),
    "periodic": lambda: gpytorch.kernels.PeriodicKernel().double(),
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
COUNTS = (0, 1, 2, -1, 1.5, "3", NAN)
"""Counts of steps, which are kept small: a call with many takes long and is in its right to."""
SHARES = (0.5, 0.0, 1.0, -0.1, 1.5, NAN, None, "0.9", [0.1, 0.9], torch.tensor([0.2, 0.8]))
GRIDS = ((), (0.0,), (-1.0,), (NAN,), 0.1, "1")
WEIGHTS = (np.ones(N), np.zeros(N), -np.ones(N), np.ones(3), np.full(N, NAN), np.full(N, 1e300), "1", 2.0)
VECTORS = (None, torch.ones(2), torch.ones(5), -torch.ones(N), torch.full((N,), NAN), "1", 1.0)
ODD: dict[str, Sequence[object]] = {
    **dict.fromkeys(("seed", "random_state"), SEEDS),
    **dict.fromkeys(("max_evaluations", "num_epochs", "num_restarts", "num_permutations", "num_repetitions"), COUNTS),
    **dict.fromkeys(("num_samples", "warmup_steps", "num_chains", "num_folds", "folds", "probe_size"), COUNTS),
    **dict.fromkeys(("confidence", "coverage", "level", "q"), SHARES),
    **dict.fromkeys(("lams", "betas", "gammas", "degrees", "temperatures", "powers"), GRIDS),
    **dict.fromkeys(("weights", "coefficients", "at", "g"), VECTORS),
    "batch_size": (1, N + 1, *NUMBERS),
    "budget": (0.0, -1.0, NAN, "1"),
    "complexity": ("dimension", "local", "monte_carlo", "no", [1.0], NAN),
    "conformal": ("split", "leave-one-out", "no", None),
    "form": ("tight", "no"),
    "initial": ("current", "no", {}, {"kernel.lengthscale": -1.0}, 3),
    "objective": (None, "risk", ke.EmbeddingEvidence(), ke.EmpiricalRisk),
    "path": (None, 3, "", "/"),
    "progress": (False,),
    "sample_weight": WEIGHTS,
    "sampler": ("nuts", ke.NUTS, 3),
    "solver": ("lp", ke.voting.ColumnGeneration, ke.voting.CoordinateDescent()),
    "span": ((0.0, 1.0), (2.0, 1.0), (1.0, NAN), (1.0,), 3.0),
    "target_kernel": (None, "rbf", RBFKernel),
    "theorem": (2, 3, "1"),
}
"""What settings of these names are given instead; the others get one of ``NUMBERS``, of words, or of truth values."""


class Inputs:
    """What a case is made of; at most a few things at once are broken, so that each fault is met alone, too."""

    def __init__(self, pick: Callable[[Sequence[T]], T]) -> None:
        self._pick = pick
        self.broken = pick(("nothing", "x", "y", "kernel", "query", "settings", "x", "kernel", "all"))
        self.chosen: dict[str, object] = {"broken": self.broken}

    def pick(self, name: str, options: Sequence[T]) -> T:
        """One of ``options``; the generator of cases decides which."""
        self.chosen[name] = choice = self._pick(tuple(options))
        return choice

    def one_of(self, *calls: Callable[[], T]) -> T:
        """The result of one of the calls."""
        return calls[self.pick("call", range(len(calls)))]()

    def is_broken(self, *parts: str) -> bool:
        return self.broken in (*parts, "all")

    def x(self, name: str = "x", usual: object = None) -> object:
        """Points ``(N, D)``, or ``usual`` where they are not broken."""
        part, seed = ("x", 0) if name == "x" else ("query", 1)
        choice = self.pick(name, tuple(POINTS) if self.is_broken(part) else ("clean",))
        return usual if choice == "clean" and usual is not None else POINTS[choice](clean_x(seed))

    def query(self) -> object:
        """Further points."""
        return self.x("query")

    def labels(self, num_classes: int = M) -> object:
        """Class numbers."""
        choice = self.pick("y", tuple(LABELS) if self.is_broken("y") else ("clean",))
        return LABELS[choice](torch.arange(N) % num_classes)

    def targets(self) -> object:
        """Real targets."""
        choice = self.pick("y", tuple(POINTS) if self.is_broken("y") else ("clean",))
        return LINE if choice == "clean" else POINTS[choice](torch.stack([LINE, LINE.square()], dim=1))

    def kernel(self) -> object:
        """A kernel."""
        return KERNELS[self.pick("kernel", tuple(KERNELS) if self.is_broken("kernel") else ("rbf", "rbf", "ard"))]()

    def setting(self, name: str, usual: object, others: Sequence[object] | None = None) -> object:
        """``usual``, or something else; a call with many settings has most of them as usual, to get past its checks."""
        if others is None:
            words = (True, False, None, "yes") if isinstance(usual, bool) else ("no", None, 3)
            others = ODD.get(name, words if isinstance(usual, bool | str) else NUMBERS)
        odd = self.is_broken("settings") and self._pick((False, False, True))
        self.chosen[name] = value = self._pick(tuple(others)) if odd else usual
        return value

    def call(self, function: Callable[..., T], *arguments: object, **settings: object) -> T:
        """``function`` with its settings as usual, or others."""
        return function(*arguments, **{name: self.setting(name, usual) for name, usual in settings.items()})
