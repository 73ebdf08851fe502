"""Figure 2, left: lengthscales for each pixel of MNIST, with and without the Rademacher term."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Sequence

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.svm import SVC
from torch import Tensor

from ...embeddings import MulticlassEmbedding
from ...kernels import log_scaled, median_distance
from ...learning import Adam, fit
from ...objectives import EmpiricalRisk, LeaveOneOutRisk, Objective, RademacherComplexity
from ...progress import progress_bar
from ...results import Record, Results, table
from .mnist import load_mnist

KEY = ("experiment", "method", "n", "seed")
METHODS: dict[str, Objective | None] = {
    "ard + rademacher": EmpiricalRisk(1e-3, below="linear") + RademacherComplexity("4e/n"),
    "ard": EmpiricalRisk(1e-3, below="linear"),
    "ard leave-one-out": LeaveOneOutRisk() + RademacherComplexity("4e/n"),
    "svc": None,
    "gpc": None,
}
PRINTED = {
    ("ard + rademacher", 500): 86.69,
    ("ard", 500): 86.96,
    ("ard + rademacher", 5000): 96.05,
    ("ard", 5000): 95.3,
}
"""Test accuracy in per cent, as printed."""

LARGEST_GPC = 500
"""Beyond this many rows scikit-learn's Gaussian-process classifier takes hours."""

FULL_BATCH = 1000
BATCH = 1200
"""Up to ``FULL_BATCH`` rows are learned from at once, more in mini-batches of the paper's size."""


def pixel_embedding(x: Tensor) -> MulticlassEmbedding:
    """An ARD Gaussian kernel on pixels, all lengthscales at the median distance.

    The paper starts at 1, where nearly all kernel values are zero and so are their gradients.
    """
    kernel = RBFKernel(ard_num_dims=x.shape[1], lengthscale_constraint=log_scaled()).to(x)
    kernel.lengthscale = median_distance(x)
    return MulticlassEmbedding(kernel, 10, regularization=0.01)


def run(
    results: Results,
    directory: str | os.PathLike[str] | None = None,
    *,
    out: pathlib.Path | None = None,
    quick: bool = False,
    sizes: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    epochs: int = 40,
    max_evaluations: int = 60,
    seed: int = 0,
    progress: bool | None = None,
) -> None:
    """Fill ``results`` with one record for each method and size, and draw the learned lengthscales into ``out``."""
    sizes = tuple(sizes or ((100,) if quick else (500, 5000)))
    methods = tuple(methods or (("ard + rademacher", "svc") if quick else METHODS))
    for method in methods:
        if method not in METHODS:
            raise ValueError(f"Expected methods among {', '.join(METHODS)}, got {method!r}.")
    images = load_mnist(directory)
    order = torch.randperm(len(images[1]), generator=torch.Generator().manual_seed(seed))
    x_test, y_test = images[2][: 500 if quick else None], images[3][: 500 if quick else None]
    with progress_bar(len(sizes) * len(methods), "pixels", progress) as bar:
        for n in sizes:
            x, y = images[0][order[:n]].double(), images[1][order[:n]]
            for method in methods:
                bar.set_postfix_str(f"{n}, {method}")
                record: Record = {"experiment": "pixels", "method": method, "n": n, "seed": seed}
                if record not in results and not (method == "gpc" and n > LARGEST_GPC):
                    began = time.perf_counter()
                    settings = {"max_evaluations": 5 if quick else max_evaluations, "epochs": epochs}
                    labels = _labels(method, x, y, x_test.double(), out, settings)
                    accuracy = 100.0 * (labels == y_test).double().mean().item()
                    found: Record = {"test_accuracy": accuracy, "printed": PRINTED.get((method, n))}
                    results.add({**record, **found, "seconds": time.perf_counter() - began})
                bar.update()


def _labels(
    method: str, x: Tensor, y: Tensor, x_test: Tensor, out: pathlib.Path | None, settings: dict[str, int]
) -> Tensor:
    objective = METHODS[method]
    if objective is None:
        model = SVC() if method == "svc" else GaussianProcessClassifier(ConstantKernel() * RBF(10.0), random_state=0)
        return torch.as_tensor(np.asarray(model.fit(x.numpy(), y.numpy()).predict(x_test.numpy())))
    embedding = pixel_embedding(x)
    if len(y) <= FULL_BATCH:
        fit(embedding, objective, x, y, max_evaluations=settings["max_evaluations"], progress=False)
    else:
        adam = Adam(settings["epochs"], learning_rate=0.05, batch_size=BATCH)
        fit(embedding, objective, x, y, optimizer=adam, seed=0, progress=False)
        # λ was learned with n_b rows; the ridge n_b λ is the better guess for all than λ
        embedding.regularization = embedding.regularization.detach() * BATCH / len(y)
    if out is not None:
        draw_lengthscales(embedding, out / f"pixels_{method.replace(' ', '_')}_{len(y)}.png")
    with torch.no_grad():
        return embedding.condition(x, y).predict(x_test)


def draw_lengthscales(embedding: MulticlassEmbedding, path: pathlib.Path) -> None:
    """The inverse lengthscale of every pixel: bright where it matters.

    The brightest hundredth share one colour: some pixels at the rim are lit in few images, and learn any value.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 4), layout="constrained")
    axes = figure.subplots()
    relevance = embedding.kernel.lengthscale.detach().reciprocal().reshape(28, 28)
    axes.imshow(relevance.numpy(), cmap="magma", vmax=relevance.quantile(0.99).item())
    axes.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def summary(records: Sequence[Record]) -> str:
    """Test accuracy by method and size."""
    rows = [
        [
            f"{r['method']}", f"{r['n']}", f"{r['test_accuracy']:.2f}",
            "" if r["printed"] is None else f"{r['printed']:.2f}", f"{r['seconds']:.0f}",
        ]
        for r in records
    ]  # fmt: skip
    return table(["method", "n", "test accuracy", "printed", "seconds"], rows)
