"""Contract of kernels and their registered rules."""

from __future__ import annotations

import abc

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..embeddings import empirical_embedding
from ..kernels import SmoothedKernel, explicit_features, frozen, gram, gram_diagonal, sup_diagonal
from .checks import check_close, check_gradients, gradients, named_parameters


class KernelContract(abc.ABC):
    """Inherit and define :meth:`make_kernel`; every rule registered for the class is checked against the kernel.

    Attributes:
        num_columns: of the test points.
        tolerance: of closed forms against GPyTorch's own evaluation, relative.

    Example:
        >>> import gpytorch
        >>> class TestRBF(KernelContract):
        ...     def make_kernel(self):
        ...         return gpytorch.kernels.RBFKernel()
        >>> TestRBF().test_gram_is_the_kernel_itself()
    """

    num_columns = 2
    tolerance = 1e-7

    @abc.abstractmethod
    def make_kernel(self) -> Kernel:
        """A new kernel, with parameter values other than the defaults."""

    def make_points(self, num_points: int = 9, seed: int = 0) -> Tensor:
        """Test points in float64."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(num_points, self.num_columns, generator=generator, dtype=torch.float64)

    def _kernel(self) -> Kernel:
        kernel = self.make_kernel()
        if not isinstance(kernel, Kernel):
            got = f"the class {kernel.__name__}" if isinstance(kernel, type) else type(kernel).__name__
            raise TypeError(f"Expected a kernel from make_kernel, got {got}. Return an instance, such as RBFKernel().")
        return kernel.double()

    def _own(self, kernel: Kernel, x1: Tensor, x2: Tensor) -> Tensor:
        """K as GPyTorch evaluates it."""
        matrix = kernel(x1, x2)
        dense: Tensor = matrix if isinstance(matrix, Tensor) else matrix.to_dense()
        return dense

    def test_gram_is_the_kernel_itself(self) -> None:
        """``gram`` gives the numbers of ``kernel(x1, x2)``."""
        kernel, x, z = self._kernel(), self.make_points(), self.make_points(5, seed=1)
        name = type(kernel).__name__
        one, two = self._own(kernel, x, x), self._own(kernel, x, z)
        check_close(f"the registered Gram of {name} at one set of points", gram(kernel, x), one, self.tolerance)
        check_close(f"the registered Gram of {name} between two sets", gram(kernel, x, z), two, self.tolerance)

    def test_gram_has_the_gradient_of_the_kernel(self) -> None:
        """The closed-form gradient is that of autograd through ``kernel(x1, x2)``, for every parameter."""
        kernel, x, z = self._kernel(), self.make_points(), self.make_points(5, seed=1)
        weight = self.make_points(9, seed=2)[:, :1] * torch.linspace(0.5, 1.5, 5, dtype=x.dtype, device=x.device)
        named, what = named_parameters(kernel), f"the gradient of the Gram of {type(kernel).__name__}"
        ours, own = (
            gradients((K * weight).sum(), list(named.values())) for K in (gram(kernel, x, z), self._own(kernel, x, z))
        )
        check_gradients(what, named, ours, own, self.tolerance)

    def test_gram_is_positive_semidefinite(self) -> None:
        """No eigenvalue is negative beyond rounding error; ``gram_diagonal`` is the diagonal."""
        kernel, x = self._kernel(), self.make_points()
        K, diagonal = gram(kernel, x).detach(), gram_diagonal(kernel, x)
        what = f"the diagonal of {type(kernel).__name__}"
        check_close(what, diagonal, K.diagonal(dim1=-2, dim2=-1), self.tolerance)
        check_close(f"the Gram of {type(kernel).__name__} and its transpose", K, K.mT, self.tolerance)
        lowest, highest = torch.linalg.eigvalsh(K).aminmax()
        assert float(lowest) >= -1e-9 * max(float(highest), 1.0), (
            f"Expected a positive semidefinite Gram of {type(kernel).__name__}, got an eigenvalue {float(lowest):.3g}."
        )

    def test_features_make_the_gram(self) -> None:
        """ZZᵀ = K, where explicit features are registered."""
        kernel, x = self._kernel(), self.make_points()
        Z = explicit_features(kernel, x)
        if Z is not None:
            what = f"ZZᵀ of the registered features of {type(kernel).__name__}"
            check_close(what, Z @ Z.mT, self._own(kernel, x, x), self.tolerance)

    def test_supremum_bounds_the_diagonal(self) -> None:
        """No k(x, x) exceeds a supremum in closed form, near the data or far from them."""
        kernel, x = self._kernel(), self.make_points()
        bound = sup_diagonal(kernel, x)
        if bound.source != "closed form":
            return
        value = float(bound.value.detach())
        for scale in (0.0, 1.0, 1e3):
            highest = float(gram_diagonal(kernel, scale * self.make_points(50, seed=3)).detach().max())
            assert highest <= value * (1.0 + 1e-9), (
                f"Expected k(x, x) of {type(kernel).__name__} at most {value:.6g}, its registered "
                f"supremum, got {highest:.6g} at points of scale {scale:g}."
            )

    def test_smoothing_is_the_integral(self) -> None:
        """r = ∫ k(x, u) k(u, y) du by the trapezoidal rule on one column, where a closed form is registered."""
        kernel = self._kernel()
        smoothed = SmoothedKernel(kernel)
        if self.num_columns != 1 or not smoothed.form(1).startswith("closed form"):
            return
        x = self.make_points(4)
        u = torch.linspace(-60.0, 60.0, 24001, dtype=x.dtype, device=x.device).unsqueeze(-1)
        K = gram(kernel, x, u)
        r = K @ K.mT * float(u[1, 0] - u[0, 0])
        check_close(f"r of the registered smoothing of {type(kernel).__name__}", smoothed.gram(x), r, 1e-5)

    def test_slope_is_the_gradient_of_the_embedding(self) -> None:
        """γ = ‖∇μ̂‖ is that of autograd through ``kernel(x1, x2)``, at points off the sample."""
        kernel, sample = self._kernel(), self.make_points()
        points = self.make_points(5, seed=4).requires_grad_()
        (slope,) = torch.autograd.grad(self._own(kernel, points, sample).mean(-1).sum(), points)
        ours = empirical_embedding(kernel, sample, points.detach()).log_slope.exp()
        check_close(f"the slope of an embedding with {type(kernel).__name__}", ours, slope.norm(dim=-1), 1e-6)

    def test_a_frozen_copy_does_not_change(self) -> None:
        """``frozen`` gives the same numbers, keeps them when the kernel changes, and has no gradient."""
        kernel, x = self._kernel(), self.make_points()
        before, twin = gram(kernel, x).detach(), frozen(kernel)
        for parameter in kernel.parameters():
            parameter.data.add_(0.5)
        check_close(f"the Gram of a frozen {type(kernel).__name__}", gram(twin, x), before, self.tolerance)
        assert not any(p.requires_grad for p in twin.parameters()), "Expected a frozen kernel without gradients."
