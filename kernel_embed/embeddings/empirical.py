r"""The empirical embedding μ̂ (eq. 2) and its log slope log γ = log ‖∇μ̂‖ (eqs. 10, 12) for any kernel.

:mod:`kernel_embed.embeddings.slopes` has the derivatives. The sampling error of μ̂ is

.. math::  \operatorname{Cov}[\hat\mu(x), \hat\mu(y)] \approx \frac1n \operatorname{Cov}_j[k(x_j, x), k(x_j, y)]
           = (D D^\top)_{xy}, \qquad D_{xj} = \frac{k(x, x_j) - \hat\mu(x)}{\sqrt{n (n - 1)}} . \qquad (6)
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from ..kernels import gram
from ..kernels.radial import Radial, RadialProfile, radial_of
from ..kernels.structure import Algebra, Node, check_columns, check_kernel, fold
from ..validation import broadcast_shapes, check_features
from .slopes import expand, radial_slope


class EmpiricalEmbedding(NamedTuple):
    """μ̂ and log γ at points, ``(*batch, t)`` each."""

    mean: Tensor
    log_slope: Tensor


def empirical_embedding(
    kernel: Kernel, sample: Tensor, points: Tensor | None = None, own: Tensor | None = None
) -> EmpiricalEmbedding:
    """μ̂ of ``sample`` ``(n, d)`` and log γ at ``points`` ``(t, d)``, differentiable; by default at the sample itself.

    ``own`` is the row of ``sample`` that each point is; ``None`` for points that are not in the sample.
    """
    check_kernel(kernel)
    sample = check_features(sample, "sample")
    check_columns(kernel, sample.shape[-1])
    if points is None:
        points, own = sample, torch.arange(sample.shape[-2], device=sample.device)
    scaled = fold(kernel, _LogDomain())
    if scaled is not None:
        return _radial_embedding(scaled, sample, points, own)
    return _general_embedding(kernel, sample, points, own)


class _Scaled(NamedTuple):
    """A radial kernel with a closed profile, the columns that reach it, and the scale on it."""

    radial: Radial
    columns: Tensor | None
    outputscale: Tensor | None


class _LogDomain(Algebra[_Scaled]):
    """The radial kernel inside scales, if there is one."""

    def leaf(self, node: Node) -> _Scaled | None:
        """The kernel with scale 1 if it is radial with a closed profile φ."""
        radial = radial_of(node.kernel)
        closed = radial is not None and isinstance(radial.profile, RadialProfile)
        return _Scaled(radial, node.columns, None) if radial is not None and closed else None

    def scale(self, node: Node, part: _Scaled) -> _Scaled:
        """The same kernel, with its scale multiplied by ``node.factor``."""
        return part._replace(outputscale=node.factor if part.outputscale is None else node.factor * part.outputscale)


def _radial_embedding(kernel: _Scaled, sample: Tensor, points: Tensor, own: Tensor | None) -> EmpiricalEmbedding:
    metric, columns, outputscale = kernel
    profile = metric.profile
    assert isinstance(profile, RadialProfile)
    if columns is not None:
        same = points is sample
        sample = sample.index_select(-1, columns)
        points = sample if same else points.index_select(-1, columns)
    z = metric.scaled(sample)
    mean, v, m, noise = radial_slope(z if points is sample else metric.scaled(points), z, own, profile)
    # Some points may coincide with another one: the exponent of the nearest is zero up to rounding.
    rounding = 64.0 * torch.finfo(z.dtype).eps * (1.0 + z.detach().square().sum(-1).amax())
    if z.shape[-2] > 1 and bool((m >= profile.exponent(-rounding)).any()):
        rows, inverse, counts = sample.unique(dim=0, return_inverse=True, return_counts=True)
        if len(rows) < len(sample):  # a repeated point has no slope of its own: count it instead
            back: Tensor | slice = slice(None)
            if own is not None:
                own, back = inverse[own].unique(return_inverse=True)
                points = rows[own]
            z = metric.scaled(rows)
            mean, v, m, noise = radial_slope(metric.scaled(points), z, own, profile, counts.to(z))
            mean, v, m, noise = mean[..., back], v[..., back, :], m[..., back], noise[..., back]
    # γ = ‖∂μ̂/∂x‖, x = ℓz (eq. 12)
    log_slope = m + _log_norm(metric.slope(v), metric.noise(noise))
    if outputscale is not None:
        mean, log_slope = outputscale[..., None] * mean, outputscale[..., None].log() + log_slope
    return EmpiricalEmbedding(mean, log_slope)


def _general_embedding(kernel: Kernel, sample: Tensor, points: Tensor, own: Tensor | None) -> EmpiricalEmbedding:
    n, t = sample.shape[-2], points.shape[-2]
    mask = None  # marks the pairs of one point with itself
    if own is not None:
        mask = torch.zeros(t, n, dtype=torch.bool, device=sample.device)
        mask[torch.arange(t, device=sample.device), own] = True
    batch = broadcast_shapes(kernel.batch_shape, points.shape[:-2])
    points = points.expand(*batch, *points.shape[-2:])
    with torch.enable_grad():
        expansion = expand(kernel, points, sample, mask)
        K, total = expansion.values, expansion.slope(torch.ones_like(expansion.values)) / n
    if not torch.is_grad_enabled():
        K, total = K.detach(), total.detach()
    spread = (sample.amax(dim=-2) - sample.amin(dim=-2)).amax(dim=-1).clamp_min(torch.finfo(sample.dtype).tiny)
    unit = 8.0 * torch.finfo(sample.dtype).eps * K.detach().abs().mean(dim=-1) / spread.unsqueeze(-1)
    return EmpiricalEmbedding(K.mean(dim=-1), _log_norm(total, unit, exact_zero_is_underflow=True))


def _log_norm(slope: Tensor, noise: Tensor, exact_zero_is_underflow: bool = False) -> Tensor:
    """log ‖slope‖; below the rounding error ``noise`` it is log ``noise``, with a warning."""
    square, unit = slope.square().sum(-1), torch.ones_like(slope[..., 0]).detach()
    # The square of 1e-170 underflows, so scale by the largest component first.
    largest = slope.detach().abs().amax(dim=-1)
    if bool((largest < math.sqrt(torch.finfo(slope.dtype).tiny) * 1e8).any()):
        unit = torch.where(largest > 0, largest, 1.0)
        square = (slope / unit.unsqueeze(-1)).square().sum(-1)
    norm = unit * square.detach().sqrt()
    if not bool(torch.isfinite(norm).all()):
        raise NanError(
            f"The gradient of the embedding is not finite at {int((~torch.isfinite(norm)).sum())} points. Check for "
            "hyperparameters that overflowed, or features on very different scales."
        )
    zero = norm == 0
    if (exact_zero_is_underflow and bool(zero.any())) or bool((zero & (noise <= 0)).any()):
        raise NanError(
            f"The embedding has no slope at {int(zero.sum())} of {zero.numel()} points, where eq. (13) gives density "
            "zero: all points are copies of one, or every kernel value between them and the others underflows, or the "
            "kernel is constant. Use a longer lengthscale or drop points that lie far from all others."
        )
    flat = norm <= noise
    if bool(flat.any()):
        message = (
            f"The empirical embedding is flat, up to rounding, at {int(flat.sum())} of {flat.numel()} points, for "
            "example on a grid. Their density under eq. (13) is zero; log γ is that of the rounding error there."
        )
        warnings.warn(message, NumericalWarning, stacklevel=4)
    safe = torch.where(flat, 1.0, square)
    return torch.where(flat, noise.clamp_min(torch.finfo(noise.dtype).tiny).log(), 0.5 * safe.log() + unit.log())


def sampling_error(kernel: Kernel, x: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """D of eq. (6) at ``points``, ``(*batch, t, n)``, and diag DDᵀ, kept off zero."""
    K, n = gram(kernel, points, x), x.shape[-2]
    D = (K - K.mean(dim=-1, keepdim=True)) / math.sqrt(n * max(n - 1, 1))
    variance = D.square().sum(dim=-1)
    return D, variance + 1e-6 * variance.detach().mean(dim=-1, keepdim=True) + torch.finfo(variance.dtype).eps
