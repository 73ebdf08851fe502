"""The one walk through a kernel: which columns reach which part, and what counts as a scale, a sum, a product."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, LinearKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel

from kernel_embed.kernels import register
from kernel_embed.kernels.structure import Algebra, Node, Registry, all_known, all_leaves, fold


class Recorder(Kernel):
    """Remembers what reaches its ``forward``."""

    def forward(self, x1, x2, diag=False, **params):
        self.seen = x1
        return x1.new_zeros(x1.shape[:-1]) if diag else x1.new_zeros(x1.shape[-2], x2.shape[-2])


class Leaves(Algebra[list[Node]]):
    def leaf(self, node):
        return [node]

    def scale(self, node, part):
        return part

    def add(self, node, parts):
        return [leaf for part in parts for leaf in part]

    multiply = add


def with_columns(kernel, columns):
    kernel.active_dims = torch.tensor(columns)
    return kernel


def nested():
    """Every way in which columns are chosen, one of them twice."""
    return {
        "alone": Recorder(),
        "active": Recorder(active_dims=[2, 0]),
        "scaled": ScaleKernel(Recorder(active_dims=[3, 1])),
        "scaled twice": ScaleKernel(ScaleKernel(Recorder(active_dims=[3, 1]))),
        "columns of the scale": ScaleKernel(Recorder(), active_dims=torch.tensor([1, 2])),
        "sum": Recorder(active_dims=[0]) + ScaleKernel(Recorder(active_dims=[2, 3])) * Recorder(),
        "columns of columns": with_columns(AdditiveKernel(Recorder(active_dims=[1]), Recorder()), [3, 2]),
        "scale of columns of columns": ScaleKernel(with_columns(Recorder(active_dims=[1]) * Recorder(), [3, 2])),
    }


@pytest.mark.parametrize("name", nested())
def test_columns_are_those_that_gpytorch_hands_on(name):
    kernel, x = nested()[name], torch.arange(12.0).reshape(3, 4)
    kernel(x).to_dense()
    leaves = fold(kernel, Leaves())
    assert leaves
    for node in leaves:
        torch.testing.assert_close(node.select(x), node.kernel.seen)
        assert node.width(4) == node.kernel.seen.shape[-1]
        expected, node.kernel.seen = node.kernel.seen, None
        node.kernel(node.select_inputs(x)).to_dense()
        torch.testing.assert_close(node.kernel.seen, expected)


def test_positions_name_the_way_from_the_root():
    kernel = RBFKernel() + ScaleKernel(LinearKernel() * (RQKernel() + PeriodicKernel()))
    leaves = {type(node.kernel).__name__: node.positions for node in fold(kernel, Leaves())}
    assert leaves == {"RBFKernel": (0,), "LinearKernel": (1, 0), "RQKernel": (1, 1, 0), "PeriodicKernel": (1, 1, 1)}


def test_an_answer_on_the_way_down_is_final():
    class Stop(Leaves):
        def enter(self, node):
            return [] if isinstance(node.kernel, ScaleKernel) else None

    assert [type(n.kernel) for n in fold(RBFKernel() + ScaleKernel(RQKernel()), Stop())] == [RBFKernel]


def test_the_default_answer_is_unknown():
    assert fold(ScaleKernel(RBFKernel()) + RBFKernel() * RBFKernel(), Algebra()) is None


def test_subclasses_of_composites_are_leaves_until_they_are_registered():
    class Half(ScaleKernel):
        def forward(self, x1, x2, **params):
            return 0.5 * super().forward(x1, x2, **params)

    class Plain(ScaleKernel):
        pass

    assert [type(n.kernel) for n in fold(Half(RBFKernel()), Leaves())] == [Half]
    register(Plain, like=ScaleKernel)
    assert [type(n.kernel) for n in fold(Plain(RBFKernel()), Leaves())] == [RBFKernel]


def test_registry_finds_exact_types_only():
    class Mine(RBFKernel):
        pass

    registry = Registry[str]("word")
    registry.register(RBFKernel, "rbf", when=lambda kernel: kernel.ard_num_dims is None)
    assert registry.find(RBFKernel()) == "rbf"
    assert registry.find(RBFKernel(ard_num_dims=2)) is None
    assert registry.find(Mine()) is None


def test_registry_refuses_what_is_no_kernel_and_a_second_rule():
    registry = Registry[str]("word")
    for kind in (torch.nn.Linear, RBFKernel(), "RBFKernel"):
        with pytest.raises(TypeError, match=r"Expected a subclass of gpytorch.kernels.Kernel, got .*Give the class"):
            registry.register(kind, "rbf")
    registry.register(RBFKernel, "rbf")
    registry.register(RBFKernel, "rbf")  # the same again, as when a notebook cell runs twice
    with pytest.raises(ValueError, match=r"Expected a class without a registered word, got RBFKernel.*replace=True"):
        registry.register(RBFKernel, "other")
    registry.register(RBFKernel, "other", replace=True)
    assert registry.find(RBFKernel()) == "other"


def test_answers_of_all_parts():
    assert all_known([1, 2]) == [1, 2]
    assert all_known([1, None]) is None
    kernel = ScaleKernel(RBFKernel()) * (LinearKernel() + RBFKernel())
    assert all_leaves(kernel, lambda leaf: isinstance(leaf, RBFKernel | LinearKernel))
    assert not all_leaves(kernel, lambda leaf: isinstance(leaf, RBFKernel))
