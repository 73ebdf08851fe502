"""Figure 2, left: lengthscales for each pixel of MNIST, with and without the Rademacher term."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.svm import SVC
from torch import Tensor

from ....embeddings import ConditionedMulticlass, MulticlassEmbedding
from ....files import read_array, write_whole
from ....kernels import log_scaled, median_distance
from ....learning import Adam, fit
from ....objectives import EmpiricalRisk, LeaveOneOutRisk, Objective, RademacherComplexity
from ....plots import free_figure, save_picture, styled
from ....plots.style import MAP
from ....progress import progress_bar
from ....results import Record, Results, number, table
from ..experiment import Experiment, Settings
from .images import load_mnist

METHODS: dict[str, Objective[ConditionedMulticlass] | None] = {
    "ard + rademacher": EmpiricalRisk(1e-3, below="linear") + RademacherComplexity("4e/n"),
    "ard": EmpiricalRisk(1e-3, below="linear"),
    "ard leave-one-out": LeaveOneOutRisk() + RademacherComplexity("4e/n"),
    "svc": None,
    "gpc": None,
}
PUBLISHED = {
    ("ard + rademacher", 500): 86.69,
    ("ard", 500): 86.96,
    ("ard + rademacher", 5000): 96.05,
    ("ard", 5000): 95.3,
}
"""Test accuracy in per cent, as published."""

LARGEST_GPC = 500
"""Beyond this many rows scikit-learn's Gaussian-process classifier takes hours."""

FULL_BATCH = 1000
BATCH = 1200
"""Up to ``FULL_BATCH`` rows are learned from at once, more in mini-batches of the paper's size."""
NUM_EPOCHS = 40


def pixel_embedding(x: Tensor) -> MulticlassEmbedding:
    """An ARD Gaussian kernel on pixels, all lengthscales at the median distance.

    The paper starts at 1, where nearly all kernel values are zero and so are their gradients.
    """
    kernel = RBFKernel(ard_num_dims=x.shape[1], lengthscale_constraint=log_scaled()).to(x)
    kernel.lengthscale = median_distance(x)
    return MulticlassEmbedding(kernel, 10, regularization=0.01)


@dataclass(frozen=True)
class PixelLengthscales(Experiment):
    """One record for each method and size; the learned lengthscales are kept in a file beside them."""

    name = "mnist-pixels"
    shows = "Figure 2 (left) of Hsu et al.: a lengthscale for each pixel, with and without the Rademacher term"
    duration = "an hour"
    key = ("experiment", "method", "n", "seed")
    tags = ("pixels",)
    options = frozenset({"data", "methods", "epochs", "seed"})

    sizes: tuple[int, ...] = (500, 5000)
    max_evaluations: int = 60

    def run(self, results: Results, settings: Settings) -> None:
        """Learn with every method on every size, and predict the test images."""
        sizes = (100,) if settings.quick else self.sizes
        methods = settings.methods or (("ard + rademacher", "svc") if settings.quick else tuple(METHODS))
        for method in methods:
            if method not in METHODS:
                raise ValueError(f"Expected methods among {', '.join(METHODS)}, got {method!r}. Choose among these.")
        x_all, y_all, x_test, y_test = load_mnist(settings.data)
        order = torch.randperm(len(y_all), generator=torch.Generator().manual_seed(settings.seed))
        held = slice(500 if settings.quick else None)
        with progress_bar(len(sizes) * len(methods), "pixels") as bar:
            for n in sizes:
                x, y = x_all[order[:n]].double(), y_all[order[:n]]
                for method in methods:
                    bar.set_postfix_str(f"{n}, {method}")
                    record: Record = {"experiment": "pixels", "method": method, "n": n, "seed": settings.seed}
                    if record not in results and not (method == "gpc" and n > LARGEST_GPC):
                        began = time.perf_counter()
                        labels = self._labels(method, x, y, x_test[held].double(), settings)
                        accuracy = 100.0 * (labels == y_test[held]).double().mean().item()
                        found: Record = {"test_accuracy": accuracy, "printed": PUBLISHED.get((method, n))}
                        results.add({**record, **found, "seconds": time.perf_counter() - began})
                    bar.update()

    def summary(self, records: Sequence[Record]) -> str:
        """Test accuracy by method and size."""
        rows = [
            [
                f"{r['method']}", f"{r['n']}", f"{r['test_accuracy']:.2f}",
                "" if r["printed"] is None else f"{r['printed']:.2f}", f"{r['seconds']:.0f}",
            ]
            for r in records
        ]  # fmt: skip
        return table(["method", "n", "test accuracy", "published", "seconds"], rows)

    def draw(self, records: Sequence[Record], out: pathlib.Path) -> None:
        """``pixels_METHOD_N.png``: the inverse lengthscale of every pixel, bright where it matters."""
        for record in records:
            path = out / _file_name(str(record["method"]), int(number(record, "n")))
            if path.exists():
                _draw_relevance(1.0 / read_array(path), path.with_suffix(".png"))

    def _labels(self, method: str, x: Tensor, y: Tensor, x_test: Tensor, settings: Settings) -> Tensor:
        objective = METHODS[method]
        if objective is None:
            model = (
                SVC() if method == "svc" else GaussianProcessClassifier(ConstantKernel() * RBF(10.0), random_state=0)
            )
            return torch.as_tensor(np.asarray(model.fit(x.numpy(), y.numpy()).predict(x_test.numpy())))
        embedding = pixel_embedding(x)
        if len(y) <= FULL_BATCH:
            evaluations = 5 if settings.quick else self.max_evaluations
            fit(embedding, objective, x, y, max_evaluations=evaluations, progress=False)
        else:
            epochs = settings.epochs or NUM_EPOCHS
            adam = Adam(epochs, learning_rate=0.05, batch_size=BATCH)
            fit(embedding, objective, x, y, optimizer=adam, seed=0, progress=False)
            # λ was learned with n_b rows; the ridge n_b λ is the better guess for all than λ
            embedding.regularization = embedding.regularization.detach() * BATCH / len(y)
        if settings.out is not None:
            lengthscales = embedding.kernel.lengthscale.detach().numpy().reshape(28, 28)
            write_whole(settings.out / _file_name(method, len(y)), lambda file: np.save(file, lengthscales))
        with torch.no_grad():
            return embedding.condition(x, y).predict(x_test)


def _file_name(method: str, n: int) -> str:
    return f"pixels_{method.replace(' ', '_')}_{n}.npy"


def _draw_relevance(relevance: NDArray[np.float64], path: pathlib.Path) -> None:
    """The brightest hundredth share one color: some pixels at the rim are lit in few images, and learn any value."""
    with styled():
        figure = free_figure(4.4, 4)
        axes = figure.subplots()
    image = axes.imshow(relevance, cmap=MAP, vmax=float(np.quantile(relevance, 0.99)))
    axes.set_axis_off()
    figure.colorbar(image, ax=axes, label="inverse lengthscale", shrink=0.8)
    save_picture(figure, path, 110)
