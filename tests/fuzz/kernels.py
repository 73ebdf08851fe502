"""Kernels, measures, trees and linear algebra."""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed import kernels, scale, tabular

from .entries import ENTRIES, ask, linear_map, parameters
from .inputs import NAN, NUMBERS, D, Inputs, M, N, clean_x

FEATURES = (None, torch.sin, torch.nn.ReLU(), "net", 3)

ENTRIES |= {
    "gram": lambda i: ke.gram(i.kernel(), i.x()),
    "gram_between": lambda i: ke.gram(i.kernel(), i.x(), i.query()),
    "default_kernel": lambda i: parameters(i.call(ke.default_kernel, i.x(), lengthscale=None)),
    "median_distance": lambda i: kernels.median_distance(i.x()),
    "set_lengthscales": lambda i: parameters(ke.set_lengthscales_by_median(i.kernel(), i.x())),
    "sup_diagonal": lambda i: i.call(kernels.sup_diagonal, i.kernel(), i.x(), bound=None),
    "explicit_features": lambda i: kernels.explicit_features(i.kernel(), i.x()),
    "initialize_from_data": lambda i: kernels.initialize_from_data(i.kernel(), i.x()),
    "nystrom_kernel": lambda i: ke.gram(scale.nystrom_kernel(i.kernel(), i.x()), i.query()),
    "random_feature_kernel": lambda i: ke.gram(
        i.call(scale.random_feature_kernel, i.kernel(), d=D, num_features=6, seed=0), i.x()
    ),
    "smoothed_kernel": lambda i: ke.gram(kernels.SmoothedKernel(i.kernel()), i.x()),
    "feature_kernel": lambda i: ke.gram(
        ke.FeatureKernel(i.setting("features", linear_map(), FEATURES), i.kernel()), i.x()
    ),
    "delta_kernel": lambda i: ke.gram(kernels.DeltaKernel(), i.x(), i.query()),
    "mahalanobis_kernel": lambda i: ke.gram(i.call(kernels.MahalanobisKernel, num_dims=D).double(), i.x()),
    "bags": lambda i: ke.gram(
        i.call(kernels.BagKernel, i.kernel(), num_features=D),
        i.call(kernels.pack_bags, [i.x(), i.query(), clean_x(2, 5)], size=None),
    ),
    "distances_of_bags": lambda i: ke.gram(
        i.call(kernels.MMDKernel, i.kernel(), num_features=D), kernels.pack_bags([i.x(), i.query(), clean_x(2, 5)])
    ),
}


def measures(i: Inputs) -> object:
    measure = i.one_of(
        lambda: i.call(kernels.GaussianMeasure, scale=1.0),
        lambda: kernels.DiscreteMeasure(i.query(), i.setting("weights", None, NUMBERS)),
        lambda: i.call(kernels.LebesgueMeasure, unit=False),
        lambda: i.setting("measure", None, (kernels.LebesgueMeasure, "gauss", 3)),
    )
    return ke.gram(kernels.SmoothedKernel(i.kernel(), measure), i.x())


def tied_kernels(i: Inputs) -> object:
    kind = i.pick("kind", (tabular.TiedRBFKernel, tabular.TiedMaternKernel, tabular.TiedLaplaceKernel))
    groups = i.setting("groups", (0, 1), ((0, 0), (), (-1, 0), (0.5, 1), (0, 2), "01", None, 3, (0, NAN)))
    more = {"nu": i.setting("nu", 1.5, (0.5, 2.5, *NUMBERS))} if kind is tabular.TiedMaternKernel else {}
    return ke.gram(kind(groups, **more).double(), i.x(), i.query())


def warpings(i: Inputs) -> object:
    numbers = i.setting("numbers", torch.tensor([True, False]), (torch.tensor([True]), None, [True, False], "all"))
    warp = tabular.make_input_transform(i.setting("kind", "squash", ("quantile", "no", None, 3)), i.x(), numbers)
    return ke.gram(ke.FeatureKernel(warp, RBFKernel().double()), i.query())


NODES = (
    *map(torch.tensor, ([1, -1, -1], [1, 2, -1], [-1, -1, -1], [1.0, -1.0, -1.0], [True, False, False], [], [1, -1])),
    *(torch.tensor([-5, -1, -1]), torch.tensor([2**40, 0, 0]), None),
)


def trees(i: Inputs) -> object:
    """Nodes of every kind, lists of trees, and points beyond all thresholds."""
    thresholds = torch.tensor([0.5, 0.0, 0.0])
    tree = tabular.Tree(
        i.setting("columns", torch.tensor([0, 0, 0]), NODES),
        i.setting("thresholds", thresholds, (thresholds * NAN, thresholds / 0, thresholds.long(), *NODES)),
        i.setting("below", torch.tensor([1, -1, -1]), NODES),
        i.setting("above", torch.tensor([2, -1, -1]), NODES),
    )
    partition = tabular.Partitions(i.setting("trees", [tree], ([], [tree, tree], tree, None, [None])))
    kernel = ke.FeatureKernel(partition)
    model = ke.MulticlassEmbedding(kernel, M).condition(i.x(), torch.arange(N) % M)
    return ask(model, "probabilities", i.query()), ke.gram(kernel, i.x()), i.call(partition.splits, num_columns=2)


def diagonal_bounds(i: Inputs) -> object:
    bound = i.one_of(
        lambda: i.call(ke.LipschitzBound, radius=1e3),
        lambda: i.call(kernels.NominalDiagonal, value=1.0),
        kernels.MeanDiagonal,
    )
    kernel = ke.FeatureKernel(linear_map()) if isinstance(bound, ke.LipschitzBound) else i.kernel()
    return kernels.sup_diagonal(kernel, i.x(), bound)


def register(i: Inputs) -> object:
    """Registrations that are refused; one that is taken would outlive its case."""
    own = type("Own", (gpytorch.kernels.Kernel,), {})
    kind = i.pick("kind", (None, "rbf", RBFKernel(), torch.nn.Module, own))
    like, profile = i.pick("like", (None, "rbf", torch.nn.Module)), i.pick("profile", (None, 3, "exp"))
    ke.register(kind, like=like, profile=profile)
