"""The test registered with causal-learn, whose part is played here by what the test asks of it."""

import sys
import types

import numpy as np
import pytest
import torch

import kernel_embed as ke


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
