"""The structure of a kernel: which columns reach which part, and what counts as a scale, a sum, a product."""

import pytest
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, LinearKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel

from kernel_embed.kernels import register
from kernel_embed.kernels.structure import Algebra, Registry, all_leaves, fold, nodes_of


class Recorder(Kernel):
    """Remembers what reaches its ``forward``."""

    def forward(self, x1, x2, diag=False, **params):
        self.seen = x1
        return x1.new_zeros(x1.shape[:-1]) if diag else x1.new_zeros(x1.shape[-2], x2.shape[-2])


def leaves(kernel):
    return [node for node in nodes_of(kernel) if node.composite is None]


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
    assert leaves(kernel)
    for node in leaves(kernel):
        torch.testing.assert_close(node.select(x), node.kernel.seen)
        assert node.width(4) == node.kernel.seen.shape[-1]
        expected, node.kernel.seen = node.kernel.seen, None
        node.kernel(node.select_inputs(x)).to_dense()
        torch.testing.assert_close(node.kernel.seen, expected)


def test_positions_number_the_parts_from_the_root():
    kernel = RBFKernel() + ScaleKernel(LinearKernel() * (RQKernel() + PeriodicKernel()))
    positions = {type(node.kernel).__name__: node.positions for node in leaves(kernel)}
    assert positions == {"RBFKernel": (0,), "LinearKernel": (1, 0), "RQKernel": (1, 1, 0), "PeriodicKernel": (1, 1, 1)}


class Names(Algebra[str]):
    """What a kernel is made of, in words; periodic kernels are unknown."""

    def enter(self, node):
        return "[x]" if isinstance(node.kernel, LinearKernel) else None

    def leaf(self, node):
        return None if isinstance(node.kernel, PeriodicKernel) else type(node.kernel).__name__[:-6]

    def scale(self, node, part):
        return f"s{part}"

    def add(self, node, parts):
        return "(" + " + ".join(parts) + ")"

    def multiply(self, node, parts):
        return " * ".join(parts)


class FilledNames(Names):
    def unknown(self, node):
        return "?"


def test_values_are_computed_from_the_parts_upwards():
    kernel = ScaleKernel(RBFKernel()) * (LinearKernel() + RQKernel())
    assert fold(kernel, Names()) == "sRBF * ([x] + RQ)"
    assert fold(kernel, Algebra()) is None


def test_an_unknown_part_makes_the_whole_unknown_unless_it_is_filled_in():
    kernel = RBFKernel() * (RQKernel() + ScaleKernel(PeriodicKernel()))
    assert fold(kernel, Names()) is None
    assert fold(kernel, FilledNames()) == "RBF * (RQ + ?)"
    assert fold(PeriodicKernel(), FilledNames()) is None


def test_subclasses_of_composites_are_leaves_until_they_are_registered():
    class Half(ScaleKernel):
        def forward(self, x1, x2, **params):
            return 0.5 * super().forward(x1, x2, **params)

    class Plain(ScaleKernel):
        pass

    assert [type(n.kernel) for n in leaves(Half(RBFKernel()))] == [Half]
    register(Plain, like=ScaleKernel)
    assert [type(n.kernel) for n in leaves(Plain(RBFKernel()))] == [RBFKernel]


def test_registry_finds_exact_types_only():
    class Mine(RBFKernel):
        pass

    registry = Registry[str]("word")
    registry.register(RBFKernel, "rbf", when=lambda kernel: kernel.ard_num_dims is None)
    assert registry.find(RBFKernel()) == "rbf"
    assert registry.find(RBFKernel(ard_num_dims=2)) is None
    assert registry.find(Mine()) is None


def test_a_predicate_of_all_leaves():
    kernel = ScaleKernel(RBFKernel()) * (LinearKernel() + RBFKernel())
    assert all_leaves(kernel, lambda leaf: isinstance(leaf, RBFKernel | LinearKernel))
    assert not all_leaves(kernel, lambda leaf: isinstance(leaf, RBFKernel))
