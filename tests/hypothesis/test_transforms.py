"""The conditional test by transforms: every formula against loops and refits, its level, and bad input."""

from __future__ import annotations

import contextlib
import sys
import types

import numpy as np
import pytest
import torch

import kernel_embed as ke
from kernel_embed.hypothesis.conditioning_set import (
    ConditioningSet,
    conditional_distribution,
    cosines,
    karhunen_loeve,
    mean_cosines,
    ranks,
)
from kernel_embed.hypothesis.smoothers import BLOCK, LENGTHSCALES, RIDGES, Smoothers, local_permutations, partitions
from kernel_embed.hypothesis.transform_test import MAX_ORDER, STATISTICS, Diagnosis, level_warnings, statistics
from kernel_embed.lab.studies.level import conditional

from .data import normal


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def left_out(K: np.ndarray, y: np.ndarray, eta: float, i: int) -> float:
    """y_i minus the prediction of a kernel ridge regression with a free constant on all other rows."""
    keep = np.delete(np.arange(len(y)), i)
    A = np.block([[K[np.ix_(keep, keep)] + eta * np.eye(len(keep)), np.ones((len(keep), 1))], [np.ones(len(keep)), 0]])
    solution = np.linalg.solve(A, np.append(y[keep], 0.0))
    return float(y[i] - K[i, keep] @ solution[:-1] - solution[-1])


def without_row(smoother, Y: torch.Tensor) -> torch.Tensor:
    """Leave-one-out residuals, from studentized ones."""
    return smoother.residuals(Y) / (1.0 - smoother.leverage).sqrt().unsqueeze(-1)


@pytest.fixture
def regression():
    z = normal(0, 30, 1)
    y = torch.sin(2 * z) + 0.3 * normal(1, 30, 1)
    return z, y


def test_leave_one_out_residuals_are_those_of_refits(regression):
    z, y = regression
    smoothers = Smoothers([z], generator())
    d = np.abs(z.numpy() - z.numpy().T)
    grams = [*(np.exp(-0.5 * d**2 / ell**2) for ell in LENGTHSCALES), np.exp(-d), z.numpy() @ z.numpy().T]
    for part, K in enumerate(grams):
        for i in (3, 6):
            own = without_row(smoothers.smoother(part, i, 0.0), y).squeeze(-1)
            refit = [left_out(K, y.squeeze(-1).numpy(), RIDGES[i], row) for row in (0, 7, 29)]
            assert own[[0, 7, 29]].tolist() == pytest.approx(refit, rel=1e-5, abs=1e-6)


def test_the_choice_has_the_least_error(regression):
    z, y = regression
    smoothers = Smoothers([z], generator())
    chosen = smoothers.select([y])[0]
    errors = [
        float(without_row(smoothers.smoother(part, i, 0.0), y).square().sum())
        for part in range(len(smoothers.paths))
        for i in range(len(RIDGES))
        if smoothers.smoother(part, i, 0.0).freedom <= 16
    ]
    assert float(without_row(chosen, y).square().sum()) == pytest.approx(min(errors), rel=1e-9)
    both = smoothers.select([y, karhunen_loeve(y.squeeze(-1))])
    assert torch.equal(both[0].residuals(y), chosen.residuals(y))


def test_many_rows_are_regressed_through_landmarks():
    z = normal(0, 400, 1)
    y = torch.sin(2 * z) + 0.3 * normal(1, 400, 1)
    smoother = Smoothers([z], generator()).select([y])[0]
    assert smoother.features.shape[1] <= 140
    assert float((smoother.residuals(y) - (y - torch.sin(2 * z))).square().mean().sqrt()) < 0.12


def test_the_distribution_function_is_a_regression_of_indicators(regression):
    z, y = regression
    smoother = Smoothers([z], generator()).select([karhunen_loeve(y.squeeze(-1))])[0]
    below, upto = conditional_distribution(y.squeeze(-1), smoother)
    for i in (0, 11, 29):
        G = (y <= y[i]).double()
        assert float(upto[i]) == pytest.approx(min(max(float(1.0 - without_row(smoother, G)[i]), 0.0), 1.0), abs=1e-9)
        G = (y < y[i]).double()
        assert float(below[i]) == pytest.approx(min(max(float(-without_row(smoother, G)[i]), 0.0), 1.0), abs=1e-9)


def test_cosines_and_their_means():
    u = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    c = cosines(u, 6)
    assert torch.allclose(c.T @ c / len(u), torch.eye(6, dtype=torch.float64), atol=1e-6)
    assert c.mean(0).abs().max() < 1e-6
    a, b = torch.tensor([0.2, 0.0]).double(), torch.tensor([0.7, 1.0]).double()
    inside = cosines(u[(u > 0.2) & (u < 0.7)], 6).mean(0)
    assert torch.allclose(mean_cosines(a, b, 6), torch.stack([inside, torch.zeros(6).double()]), atol=1e-4)


def test_permutations_stay_inside_blocks():
    z = normal(0, 97, 3)
    blocks = partitions(z, 6, generator())
    for block in blocks:
        counts = np.unique(block, return_counts=True)[1]
        assert int(counts.min()) >= BLOCK
        assert int(counts.max()) < 2 * BLOCK
    groups = torch.arange(100).unsqueeze(-1) % 4
    moved = local_permutations(groups.double(), 20, generator())
    assert bool((groups[moved].squeeze(-1) == groups.squeeze(-1)).all())
    assert int((moved != torch.arange(100)).sum()) > 1500


def test_statistics_are_sums_over_rows():
    z = normal(2, 40, 1)
    given = ConditioningSet(z, (), generator())
    x, y = (given.features_of(z + normal(s, 40, 1), (), generator()) for s in (3, 4))
    T = statistics(x, y, given, STATISTICS, 5, generator(7))
    assert T.shape == (len(STATISTICS), 6)
    for j, statistic in enumerate(STATISTICS):
        total = 0.0
        a, b = x.kinds[statistic.kind].numpy(), y.kinds[statistic.kind].numpy()
        for k in range(a.shape[1]):
            for m in range(b.shape[1]):
                if (k + 1) * (m + 1) > MAX_ORDER:
                    continue
                product = a[:, k] * b[:, m]
                if statistic.weighted:
                    term = given.constant * product.sum() ** 2 + ((given.weights.numpy().T @ product) ** 2).sum()
                else:
                    term = product.sum() ** 2
                total += term / ((k + 1) * (m + 1))
        assert float(T[j, 0]) == pytest.approx(total, rel=1e-9)


def test_level_where_the_variance_has_a_common_cause():
    """A level of 0.06 rejects more than 12 of 60 with probability 3e-5; residuals reject four in five."""
    found = [ke.conditional_independence_test(*conditional("common variance", r, 60), None, 39, r) for r in range(60)]
    assert sum(answer.pvalue <= 0.05 for answer in found) <= 12


def test_dependence_that_averages_out_over_z():
    z, e, f = normal(0, 3, 150, 1)
    answer = ke.conditional_independence_test(z + e, z + torch.sign(z) * e + 0.5 * f, z, None, 199, 0)
    assert answer.pvalue < 0.02
    assert answer.pvalues[0] > 0.05  # the covariance of the residuals sees nothing
    assert "weighted by z" in str(answer)


def test_vectors_and_their_products():
    z, a, b, e = normal(0, 4, 150, 1)
    x = torch.cat([a + z, b], dim=1)
    dependent = ke.conditional_independence_test(x, a * b + z + 0.2 * e, z, None, 199, 0)
    independent = ke.conditional_independence_test(x, e + z, z, None, 199, 0)
    assert dependent.pvalue < 0.02 < independent.pvalue
    assert isinstance(dependent, ke.hypothesis.ConditionalTestResult)
    assert dependent.transforms[0].shape == (150, 2)


def test_categories_and_counts():
    z, e, f = normal(0, 3, 150, 1)
    group = (z + e > 0).long()
    answer = ke.conditional_independence_test(group, z + 1.5 * group + 0.5 * f, z, None, 199, 0)
    assert answer.pvalue < 0.02
    assert ke.conditional_independence_test(group, z + f, z, None, 199, 0).pvalue > 0.05
    assert ke.conditional_independence_test(z + e, z + f, group, None, 199, 0).pvalue < 0.05
    assert (
        answer.pvalue
        == ke.conditional_independence_test(7 - 3 * group, z + 1.5 * group + 0.5 * f, z, None, 199, 0).pvalue
    )


def test_the_two_samples_and_their_concept():
    x, e, more, f = normal(0, 4, 100, 1)
    more = more + 0.7
    answer = ke.hypothesis.conditional_two_sample_test(x, x + 0.5 * e, more, more + 0.5 * f, 199, 0)
    assert answer.pvalue > 0.05 > ke.two_sample_test(x, more, seed=0).pvalue
    assert set(answer.diagnostics) == {"y", "sample"}
    assert answer.sizes == (100, 100)
    assert ke.hypothesis.conditional_two_sample_test(x, x + 0.5 * e, more, more + 1.5 * f, 199, 0).pvalue < 0.05
    with pytest.raises(ValueError, match="one row for each observation"):
        ke.hypothesis.conditional_two_sample_test(x, e[:50], more, f)


def test_diagnostics_say_what_the_test_rests_on():
    z, e, f = normal(0, 3, 100, 1)
    answer = ke.conditional_independence_test(z + 0.2 * e, f, z, None, 99, 0)
    assert answer.diagnostics["x"].explained > 0.8 > 0.2 > answer.diagnostics["y"].explained
    assert all(d.independent > 0.01 and d.uniform > 0.01 and d.ties == 0 for d in answer.diagnostics.values())
    assert answer.warnings == ()


def test_a_warning_where_rows_are_few_or_both_are_functions_of_z():
    z = normal(0, 60, 1)
    with pytest.warns(ke.hypothesis.LevelWarning, match="z explains more than 90% of both"):
        ke.conditional_independence_test(z.square(), z.square() + z, z, None, 99, 0)
    nearly = ke.conditional_independence_test(z.square(), z + normal(1, 60, 1), z, None, 99, 0)
    assert nearly.warnings == ()
    z = normal(0, 20, 30)
    with pytest.warns(ke.hypothesis.LevelWarning, match="20 rows are few for 30 columns"):
        answer = ke.conditional_independence_test(normal(1, 20, 1), normal(2, 20, 1), z, None, 99, 0)
    assert 0 < answer.pvalue <= 1
    assert "warning: 20 rows" in str(answer)


def test_a_warning_where_both_still_depend_on_z():
    z = normal(0, 150, 1)
    fast = torch.sign(torch.sin(60 * z)) * z.square()
    given = ConditioningSet(z, (), generator())
    sure, unsure = Diagnosis(0.5, 0.5, 0.5, 0.0), Diagnosis(0.0, 0.5, 1e-4, 0.0)
    assert level_warnings({"x": unsure, "y": sure}, given, []) == ()
    assert "still depend on z" in level_warnings({"x": unsure, "y": unsure}, given, [])[0]
    assert 0 < ke.conditional_independence_test(fast, fast.abs(), z, None, 99, 0).pvalue <= 1


@pytest.mark.parametrize("z", ["constant", "x", "minus x", "many values", "ties", "pairs"])
def test_unusual_z(z):
    x, y = normal(0, 60, 1), normal(1, 60, 1)
    values = {
        "constant": torch.ones(60, 1),
        "x": x,
        "minus x": -x,
        "many values": torch.arange(60).unsqueeze(-1),
        "ties": (2 * x).round(),
        "pairs": torch.arange(60).unsqueeze(-1) // 2,
    }
    few = z in ("many values", "pairs")  # of integers each is a category
    with pytest.warns(ke.hypothesis.LevelWarning, match="rows are few") if few else contextlib.nullcontext():
        answer = ke.conditional_independence_test(x, y, values[z], None, 99, 0)
    assert 0 < answer.pvalue <= 1
    if "x" in z:
        assert answer.pvalue == 1.0
        assert "x is a function of z" in answer.warnings[0]
    if z == "constant":
        assert ke.conditional_independence_test(x, x + 0.5 * y, values[z], None, 99, 0).pvalue < 0.05


def test_groups_of_one_row_and_groups_of_many():
    """A permutation inside groups keeps what the group explains, whatever it is; a group of one row says nothing."""
    group = torch.cat([torch.arange(10).repeat_interleave(12), torch.arange(10, 14)]).unsqueeze(-1)
    effect = 5.0 * normal(0, 14, 1)[group.squeeze(-1)]
    x, y = effect + normal(1, 124, 1), effect.square() + normal(2, 124, 1)
    assert ke.conditional_independence_test(x, y, group, None, 99, 0).pvalue > 0.05
    assert ke.conditional_independence_test(x, y + 0.6 * x, group, None, 99, 0).pvalue < 0.05
    moved = local_permutations(ConditioningSet(group.double(), (0,), generator()).points, 20, generator())
    assert bool((moved[:, -4:] == torch.arange(120, 124)).all())


def test_units_and_monotone_maps_of_ranks():
    x, y, z = normal(0, 3, 60, 1)
    one = ke.conditional_independence_test(x + z, y + z, z, None, 99, 0)
    other = ke.conditional_independence_test(100 * (x + z) - 3, 0.01 * (y + z), 5 * z + 1, None, 99, 0)
    assert one.pvalue == other.pvalue
    assert torch.allclose(ranks(x.squeeze(-1)), ranks(x.squeeze(-1).exp()))


# --- causal-learn -----------------------------------------------------------------------------------------------------


class CITBase:
    """What causal-learn's ``CIT_Base`` gives to a test."""

    def __init__(self, data, **kwargs):
        self.data, self.pvalue_cache = data, {}

    def check_cache_method_consistent(self, name, parameters):
        self.name, self.parameters = name, parameters

    def assert_input_data_is_valid(self):
        assert np.isfinite(self.data).all()

    def get_formatted_XYZ_and_cachekey(self, X, Y, condition_set):
        given = sorted(condition_set or [])
        X, Y = sorted((X, Y))
        return [X], [Y], given, f"{X};{Y};{given}"


@pytest.fixture
def known(monkeypatch):
    """The tests that are registered, by name."""
    tests = {}
    cit = types.ModuleType("causallearn.utils.cit")
    cit.CIT_Base, cit.register_ci_test = CITBase, tests.__setitem__
    for name in ("causallearn", "causallearn.utils"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "causallearn.utils.cit", cit)
    return tests


@pytest.fixture
def chain():
    """x → y → z, and the group that y falls into."""
    e = torch.randn(120, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = e[:, 0] + 0.5 * e[:, 1]
    return torch.stack([e[:, 0], y, torch.tanh(2 * y) + 0.5 * e[:, 2], (y > 0).double()], dim=1)


@pytest.mark.parametrize("method", [None, "residuals"])
def test_regressions_are_computed_once(known, chain, method):
    assert ke.hypothesis.register_causal_test(num_permutations=100, seed=0, method=method) == "kernel_embed"
    test = known["kernel_embed"](chain.numpy())
    assert test(0, 2) == ke.independence_test(chain[:, 0], chain[:, 2], None, 100, 0).pvalue < 0.05
    assert test(0, 2, [1]) > 0.05
    assert test(2, 0, [1]) == test(0, 2, [1])
    assert test(0, 1, [2]) < 0.05
    assert (test.columns.residuals if method else test.columns.features).cache_info().currsize == 4
    assert len(test.pvalue_cache) == 3


def test_options_reach_the_test(known, chain):
    name = ke.hypothesis.register_causal_test("by kernel", kernel="median", kernel_y="best", method="kernel", seed=1)
    test = known[name](chain.numpy())
    own = ke.conditional_independence_test(
        *(chain[:, j] for j in (0, 2, 1)), "median", seed=1, kernel_y="best", method="kernel"
    )
    assert test(0, 2, [1]) == own.pvalue
    with pytest.raises(TypeError, match="unexpected keyword argument 'permutations'"):
        ke.hypothesis.register_causal_test(permutations=10)


@pytest.mark.parametrize("method", ["transforms", "residuals", "kernel"])
def test_categories(known, chain, method):
    """A column of categories means the same under any names of them."""
    renamed = chain.clone()
    renamed[:, 3] = torch.where(chain[:, 3] > 0, -7.0, 40.0)
    ke.hypothesis.register_causal_test("groups", num_permutations=50, seed=0, method=method, categorical=[3])
    one, other = (known["groups"](data.numpy()) for data in (chain, renamed))
    for question in ((0, 3), (0, 3, [2]), (0, 2, [3])):
        assert one(*question) == pytest.approx(other(*question), abs=1e-6)
    with pytest.raises(ValueError, match="must be between 0 and 2"):
        known["groups"](chain[:, :3].numpy())


def test_without_causal_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "causallearn.utils.cit", None)
    with pytest.raises(ImportError, match=r"kernel-embed\[causal\]"):
        ke.hypothesis.register_causal_test()


def test_the_registered_test_finds_the_chain(chain):
    """x → y → z: x and z are separated by y, and by nothing else."""
    cit = pytest.importorskip("causallearn.utils.cit")
    test = cit.CIT(chain[:, :3].numpy(), ke.hypothesis.register_causal_test(seed=0, num_permutations=200))
    assert test(0, 2) < 0.05
    assert test(2, 0, [1]) == test(0, 2, [1]) > 0.05
    assert test(0, 1, [2]) < 0.05
    own = ke.conditional_independence_test(*(chain[:, [j]] for j in (0, 2, 1)), seed=0)
    assert own.pvalue == pytest.approx(test(0, 2, [1]), abs=0.1)
