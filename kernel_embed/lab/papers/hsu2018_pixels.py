"""Figure 2, left: lengthscales for each pixel of MNIST, with and without the Rademacher term."""

from __future__ import annotations

import itertools
import pathlib
import time
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.svm import SVC
from torch import Tensor

from ...archive import read_plain, write_plain
from ...embeddings import ConditionedMulticlass, MulticlassEmbedding
from ...kernels import log_scaled, median_distance
from ...learning import Adam, fit
from ...objectives import EmpiricalRisk, LeaveOneOutRisk, Objective, RademacherComplexity
from ...plots import save_picture
from ...plots.style import MAP
from ...results import Record, number
from ..experiment import Experiment, Settings, new_figure
from ..runner import Case
from .hsu2018_mnist import FILES, load_mnist

METHODS: dict[str, Objective[ConditionedMulticlass] | None] = {
    "ard + rademacher": EmpiricalRisk(1e-3, below="linear") + RademacherComplexity("4e/n"),
    "ard": EmpiricalRisk(1e-3, below="linear"),
    "ard leave-one-out": LeaveOneOutRisk() + RademacherComplexity("4e/n"),
    "svc": None,
    "gpc": None,
}
PUBLISHED = {("ard + rademacher", 500): 86.69, ("ard", 500): 86.96}
PUBLISHED |= {("ard + rademacher", 5000): 96.05, ("ard", 5000): 95.3}
"""Test accuracy in percent, as published."""

LARGEST_GPC = 500
"""Beyond this many rows scikit-learn's Gaussian-process classifier takes hours."""
FULL_BATCH, BATCH, NUM_EPOCHS = 1000, 1200, 40
"""Up to ``FULL_BATCH`` rows are learned from at once, more in mini-batches of the paper's size."""


def _cases(settings: Settings, sizes: tuple[int, ...], max_evaluations: int) -> Iterator[Case]:
    """Every method on every size; the learned lengthscales are written to a file next to the records."""
    methods = settings.selected("methods", METHODS, ("ard + rademacher", "svc") if settings.quick else tuple(METHODS))
    for n, method in itertools.product((100,) if settings.quick else sizes, methods):
        if not (method == "gpc" and n > LARGEST_GPC):
            key: Record = {"experiment": "pixels", "method": method, "n": n, "seed": settings.seed}
            yield Case(key, partial(_measure, method, n, settings, 5 if settings.quick else max_evaluations))


def _measure(method: str, n: int, settings: Settings, max_evaluations: int) -> Record:
    x, y, x_test, y_test = load_mnist(settings.data)
    rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(settings.seed))[:n]
    test, start = slice(500 if settings.quick else None), time.perf_counter()
    labels = _labels(method, x[rows].double(), y[rows], x_test[test].double(), settings, max_evaluations)
    accuracy = 100.0 * (labels == y_test[test]).double().mean().item()
    printed = PUBLISHED.get((method, n))
    return {"test_accuracy": accuracy, "printed": printed, "seconds": time.perf_counter() - start}


def _labels(method: str, x: Tensor, y: Tensor, x_test: Tensor, settings: Settings, max_evaluations: int) -> Tensor:
    objective = METHODS[method]
    if objective is None:
        model = SVC() if method == "svc" else GaussianProcessClassifier(ConstantKernel() * RBF(10.0), random_state=0)
        return torch.as_tensor(np.asarray(model.fit(x.numpy(), y.numpy()).predict(x_test.numpy())))
    kernel = RBFKernel(ard_num_dims=x.shape[1], lengthscale_constraint=log_scaled()).to(x)
    # The paper starts at 1, where nearly all kernel values are zero and so are their gradients.
    kernel.lengthscale = median_distance(x)
    embedding = MulticlassEmbedding(kernel, 10, regularization=0.01)
    if len(y) <= FULL_BATCH:
        fit(embedding, objective, x, y, max_evaluations=max_evaluations, progress=False)
    else:
        adam = Adam(settings.epochs or NUM_EPOCHS, learning_rate=0.05, batch_size=BATCH)
        fit(embedding, objective, x, y, optimizer=adam, seed=0, progress=False)
        # λ was learned with n_b rows; the ridge n_b λ is the better guess for all than λ
        embedding.regularization = embedding.regularization.detach() * BATCH / len(y)
    if settings.out is not None:
        lengthscales = kernel.lengthscale.detach().numpy().reshape(28, 28)
        write_plain(settings.out / _file_name(method, len(y)), "lengthscales", lengthscales)
    with torch.no_grad():
        return embedding.condition(x, y).predict(x_test)


def draw(records: Sequence[Record], out: pathlib.Path) -> None:
    """``pixels_METHOD_N.png``: the inverse lengthscale of every pixel, bright where it matters.

    The brightest hundredth share one color: some pixels at the rim are lit in few images, and learn any value.
    """
    for record in records:
        path = out / _file_name(str(record["method"]), int(number(record, "n")))
        if path.exists():
            relevance, (figure, axes) = 1.0 / read_plain(path, "lengthscales"), new_figure(4.4, 4)
            image = axes.imshow(relevance, cmap=MAP, vmax=float(np.quantile(relevance, 0.99)))
            axes.set_axis_off()
            figure.colorbar(image, ax=axes, label="inverse lengthscale", shrink=0.8)
            save_picture(figure, path.with_suffix(".png"), 110)


def _file_name(method: str, n: int) -> str:
    return f"pixels_{method.replace(' ', '_')}_{n}.npz"


COLUMNS = {"method": "{method}", "n": "{n}", "test accuracy": "{test_accuracy:.2f}", "published": "{printed:.2f}"}
PIXELS = Experiment(
    "mnist-pixels", "a lengthscale for each pixel, with and without the Rademacher term", "an hour",
    ("experiment", "method", "n", "seed"), _cases, {**COLUMNS, "seconds": "{seconds:.0f}"}, draw,
    options="data methods epochs seed", paper="Hsu et al.", part="Figure 2 (left)",
    tag=("pixels",), files=FILES, parameters={"sizes": (500, 5000), "max_evaluations": 60},
)  # fmt: skip
