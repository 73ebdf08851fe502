"""The structure of a kernel: which columns reach which part, and what counts as a scale, a sum, a product."""

import pytest
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, RBFKernel, ScaleKernel

from kernel_embed.kernels import register
from kernel_embed.kernels.structure import nodes_of


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


def test_subclasses_of_composites_are_leaves_until_they_are_registered():
    class Half(ScaleKernel):
        def forward(self, x1, x2, **params):
            return 0.5 * super().forward(x1, x2, **params)

    class Plain(ScaleKernel):
        pass

    assert [type(n.kernel) for n in leaves(Half(RBFKernel()))] == [Half]
    register(Plain, like=ScaleKernel)
    assert [type(n.kernel) for n in leaves(Plain(RBFKernel()))] == [RBFKernel]
