"""Input transforms against loops and scipy, and tied lengthscales against products of kernels."""

import math

import gpytorch
import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from sklearn.ensemble import ExtraTreesClassifier

import kernel_embed as ke
from kernel_embed.kernels import DeltaKernel, FeatureKernel, explicit_features, gram
from kernel_embed.tabular import (
    Partitions,
    TiedLaplaceKernel,
    TiedMaternKernel,
    TiedRBFKernel,
    Tree,
    input_transforms,
    make_input_transform,
)
from kernel_embed.tabular.input_transforms import cached_transforms, weighted_quantiles
from kernel_embed.tabular.tied_kernels import laplace_gram


@pytest.fixture
def columns():
    generator = np.random.default_rng(0)
    heavy = np.exp(2.0 * generator.standard_normal(200))
    zeros = np.where(generator.random(200) < 0.7, 0.0, generator.random(200))
    flag = (generator.random(200) < 0.5).astype(float)
    return torch.as_tensor(np.stack([heavy, zeros, flag], axis=1))


NUMBERS = torch.tensor([True, True, False])


def test_quantile_is_the_mid_rank(columns):
    w = make_input_transform("quantile", columns, NUMBERS)(columns)
    for j in (0, 1):
        expected = (rankdata(columns[:, j]) - 0.5) / 200 * math.sqrt(12)
        np.testing.assert_allclose(w[:, j], expected, atol=0.003 * math.sqrt(12))
    assert torch.equal(w[:, 2], columns[:, 2])


@pytest.mark.parametrize("kind", ["squash", "quantile"])
def test_rows_are_warped_once_while_they_stay_as_they_are(columns, kind):
    warp, other = make_input_transform(kind, columns, NUMBERS), make_input_transform(kind, 2.0 * columns, NUMBERS)
    expected, others = warp(columns), other(columns)
    assert warp(columns) is not expected
    with cached_transforms():
        first = warp(columns)
        assert warp(columns.reshape(-1, 3)) is first
        assert torch.equal(first, expected)
        assert torch.equal(other(columns), others)
        assert torch.equal(warp(columns[50:60]), expected[50:60])
        columns[0, 0] = 0.5
        changed = warp(columns)
        for k in range(input_transforms.CACHE_SIZE + 1):
            warp(columns[k:])
        assert warp(columns) is not changed
    assert torch.equal(changed, warp(columns))
    assert not torch.equal(changed, expected)


def test_squash_is_its_formula_and_bounded(columns):
    w = make_input_transform("squash", columns, NUMBERS)(columns)
    x = columns[:, 0].numpy()
    low, middle, high = (np.sort(x)[math.ceil(level * 200) - 1] for level in (0.25, 0.5, 0.75))
    t = (x - middle) / ((high - low) / 1.349)
    np.testing.assert_allclose(w[:, 0], t / np.sqrt(1 + (t / 3) ** 2), rtol=1e-12)
    far = torch.tensor([[1e300, -1e300, 1.0]], dtype=torch.float64)
    assert make_input_transform("squash", columns, NUMBERS)(far).abs().max() <= 3.0


@pytest.mark.parametrize("kind", ["squash", "quantile"])
def test_warpings_are_monotone_and_count_weights_as_repeated_rows(columns, kind):
    weights = torch.arange(200) % 3 + 1.0
    weighted = make_input_transform(kind, columns, NUMBERS, weights.double())
    repeated = make_input_transform(kind, columns.repeat_interleave(weights.long(), dim=0), NUMBERS)
    grid = torch.linspace(-5, 30, 300, dtype=torch.float64).unsqueeze(-1).expand(-1, 3)
    torch.testing.assert_close(weighted(grid), repeated(grid))
    assert (weighted(grid)[:, :2].diff(dim=0) >= -1e-12).all()


def test_ranks_are_looked_up_in_blocks(columns, monkeypatch):
    numbers = torch.ones(columns.shape[1], dtype=torch.bool)
    numbers[1] = False
    whole = make_input_transform("quantile", columns, numbers)(columns)
    monkeypatch.setattr(input_transforms, "BLOCK_NUMBERS", 1)  # one column at a time
    assert torch.equal(make_input_transform("quantile", columns, numbers)(columns), whole)
    assert torch.equal(whole[:, 1], columns[:, 1])


def test_many_values_keep_few_knots():
    x = torch.randn(5000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    warp = make_input_transform("quantile", x, torch.tensor([True]))
    assert warp.knots.shape[-1] <= input_transforms.NUM_KNOTS
    expected = (torch.as_tensor(rankdata(x[:, 0])) - 0.5) / 5000 * math.sqrt(12)
    assert (warp(x)[:, 0] - expected).abs().max() < 0.03


def test_weighted_quantiles_are_those_of_repeated_rows():
    x = torch.rand(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = torch.arange(30) % 4 + 1
    levels = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    expected = weighted_quantiles(x.repeat_interleave(weights, dim=0), levels)
    torch.testing.assert_close(weighted_quantiles(x, levels, weights.double()), expected)


def test_unknown_kinds_and_groups_are_rejected(columns):
    with pytest.raises(ValueError, match=r"Unknown input transform 'log'"):
        make_input_transform("log", columns, NUMBERS)
    with pytest.raises(ValueError, match=r"Expected groups as column numbers from 0, got \[-1, 0\]"):
        TiedRBFKernel([-1, 0])


def test_a_category_is_a_delta_kernel_with_one_relevance():
    generator = torch.Generator().manual_seed(0)
    number = torch.randn(20, 1, dtype=torch.float64, generator=generator)
    category = torch.randint(3, (20,), generator=generator)
    one_hot = torch.nn.functional.one_hot(category).double() / math.sqrt(2)
    kernel = TiedRBFKernel([0, 1, 1, 1]).double()
    kernel.column_lengthscale = torch.tensor([0.8, 1.5])
    rbf = gpytorch.kernels.RBFKernel().double()
    rbf.lengthscale = 0.8
    same = gram(DeltaKernel(), category.double().unsqueeze(-1))
    expected = gram(rbf, number) * torch.where(same > 0, 1.0, math.exp(-0.5 / 1.5**2))
    torch.testing.assert_close(gram(kernel, torch.cat([number, one_hot], -1)), expected)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_tied_matern_is_matern_with_equal_lengthscales(nu):
    x = torch.randn(15, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tied, plain = (
        TiedMaternKernel([0, 1, 1], nu=nu).double(),
        gpytorch.kernels.MaternKernel(nu, ard_num_dims=3).double(),
    )
    tied.lengthscale = torch.tensor([0.5, 2.0])
    plain.lengthscale = torch.tensor([0.5, 2.0, 2.0])
    torch.testing.assert_close(gram(tied, x), gram(plain, x))
    gram(tied, x).square().sum().backward()
    gram(plain, x).square().sum().backward()
    own = plain.raw_lengthscale.grad[0]
    torch.testing.assert_close(tied.raw_lengthscale.grad[0], torch.stack([own[0], own[1] + own[2]]))


def test_the_laplace_kernel_is_a_product_of_exponentials():
    x = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = TiedLaplaceKernel([0, 1, 1]).double()
    kernel.lengthscale = torch.tensor([0.5, 2.0])
    expected = torch.ones(9, 9, dtype=torch.float64)
    for c, lengthscale in enumerate((0.5, 2.0, 2.0)):
        one = gpytorch.kernels.MaternKernel(nu=0.5).double()
        one.lengthscale = lengthscale
        expected = expected * gram(one, x[:, c : c + 1])
    torch.testing.assert_close(gram(kernel, x), expected)
    torch.testing.assert_close(kernel(x).to_dense(), expected)
    torch.testing.assert_close(kernel(x, diag=True), torch.ones(9, dtype=torch.float64))


@pytest.mark.parametrize("same", [True, False])
def test_the_gradient_of_the_laplace_kernel(same):
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(6, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    others = torch.randn(4, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    weights = torch.randn(6, 6 if same else 4, dtype=torch.float64, generator=generator)
    inputs = (z,) if same else (z, others)
    assert torch.autograd.gradcheck(lambda *points: laplace_gram(*points) * weights, inputs)


def test_standard_columns_have_weighted_mean_0_and_deviation_1(columns):
    numbers = torch.tensor([True, True, False])
    weights = torch.arange(1.0, len(columns) + 1.0, dtype=torch.float64)
    warped = make_input_transform("standard", columns, numbers, weights)(columns).numpy()
    for j in (0, 1):
        assert np.average(warped[:, j], weights=weights) == pytest.approx(0.0, abs=1e-12)
        assert np.average(warped[:, j] ** 2, weights=weights) == pytest.approx(1.0)
    np.testing.assert_array_equal(warped[:, 2], columns[:, 2])
    huge = make_input_transform("standard", 1e200 * columns[:, :1], torch.tensor([True]))(1e200 * columns[:, :1])
    torch.testing.assert_close(
        huge, make_input_transform("standard", columns[:, :1], torch.tensor([True]))(columns[:, :1])
    )


# --- partitions -------------------------------------------------------------------------------------------------------


def test_it_is_the_share_of_trees_in_which_two_rows_have_one_leaf():
    generator = np.random.default_rng(0)
    x = generator.integers(20, size=(40, 3)) / 4.0  # exact in single precision, in which scikit-learn compares
    forest = ExtraTreesClassifier(7, min_samples_leaf=3, random_state=0).fit(x, x[:, 0] > x[:, 1])
    trees = [
        Tree(*map(torch.as_tensor, (t.feature, t.threshold, t.children_left, t.children_right)))
        for t in (one.tree_ for one in forest.estimators_)
    ]
    phi = Partitions(trees)
    leaves = forest.apply(x)
    expected = (leaves[:, None, :] == leaves[None, :, :]).mean(-1)
    rows = torch.tensor(x)
    np.testing.assert_allclose(gram(FeatureKernel(phi), rows).numpy(), expected)
    assert explicit_features(FeatureKernel(phi), rows).shape == (40, phi.num_cells)
    assert phi.num_cells == sum(one.get_n_leaves() for one in forest.estimators_)
    splits = np.concatenate([one.tree_.feature for one in forest.estimators_])
    assert phi.splits(3).tolist() == [int((splits == j).sum()) for j in range(3)]


def test_a_tree_without_splits_is_one_cell():
    root = Tree(torch.tensor([-2]), torch.tensor([-2.0]), torch.tensor([-1]), torch.tensor([-1]))
    assert Partitions([root, root])(torch.zeros(3, 1)).square().sum(-1).allclose(torch.ones(3))


def test_it_is_saved_without_pickle(tmp_path):
    x, y = torch.tensor([[0.0], [1.0], [0.2]]), torch.tensor([0, 1, 0])
    conditioned = ke.MulticlassEmbedding(FeatureKernel(Partitions([Tree(**PARTS)])), 2).condition(x, y)
    ke.save(conditioned, tmp_path / "model.ke")
    assert torch.equal(ke.load(tmp_path / "model.ke").probabilities(x), conditioned.probabilities(x))


PARTS = {
    "columns": torch.tensor([0, 0, 0]),
    "thresholds": torch.tensor([0.5, 0.0, 0.0]),
    "below": torch.tensor([1, -1, -1]),
    "above": torch.tensor([2, -1, -1]),
}
REFUSED = [
    (r"Expected .* got .*", lambda: Tree(**{**PARTS, "columns": torch.tensor([0.0, 0.0, 0.0])})),
    (r"Expected .* got .*", lambda: Tree(**{**PARTS, "below": torch.tensor([1.0, -1.0, -1.0])})),
    (r"Expected .* got .*", lambda: Tree(**{**PARTS, "above": torch.tensor([True, False, False])})),
    (r"Expected .* got .*", lambda: Tree(**{**PARTS, "thresholds": torch.tensor([float("nan"), 0.0, 0.0])})),
    ("below to lead to nodes of larger numbers", lambda: Tree(**{**PARTS, "below": torch.tensor([0, -1, -1])})),
    ("must have the same length", lambda: Tree(**{**PARTS, "thresholds": torch.zeros(2)})),
    ("at least one node", lambda: Tree(**{name: part[:0] for name, part in PARTS.items()})),
    ("Expected a list of trees", lambda: Partitions([])),
    ("with d above 0", lambda: Partitions([Tree(**PARTS)])(torch.zeros(3, 0))),
    ("Expected num_columns as a whole number", lambda: Partitions([Tree(**PARTS)]).splits("2")),
]


@pytest.mark.parametrize(("message", "call"), REFUSED)
def test_trees_that_are_none_are_refused(message, call):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
