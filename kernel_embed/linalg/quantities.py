"""The inputs of objectives from a system factorized by LAPACK, and how their derivatives are passed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .lapack import Cotangents
from .units import Units


class Quantity(NamedTuple):
    """An input of objectives: its value, and how a derivative with respect to it is passed on."""

    value: Callable[[Cotangents], Any]
    pull_back: Callable[[Cotangents, Any], None]


def _leave_one_out(at: Cotangents) -> Any:
    system = at.system
    if system.groups is not None:
        blocks = at.blocks = system.inverse_blocks()
        at.residuals = system.groups.residuals(torch.from_numpy(system.V), tuple(blocks), blocks[0])
        return system.Y - at.residuals.numpy()
    return system.Y - system.V / system.left_out_diagonal()[:, None]


def _pull_back_leave_one_out(at: Cotangents, slope: Any) -> None:
    system = at.system
    if system.groups is not None:
        # S = C_GG⁻¹ḡ_G, V̄_G −= S, C̄_GG += S E_Gᵀ, with E the residuals
        blocks = at.blocks
        S = system.groups.residuals(torch.from_numpy(np.ascontiguousarray(slope)), tuple(blocks), blocks[0])
        at.add("V", -S.numpy())
        at.add("c", list(system.groups.outer_blocks(S, at.residuals)))
        return
    c = system.left_out_diagonal()
    along = slope / c[:, None]
    at.add("V", -along)
    system.pull_back_diagonal(at, (along * system.V).sum(1) / c)


def _pull_back_inverse_diagonal(at: Cotangents, slope: Any) -> None:
    groups, slope = at.system.groups, torch.from_numpy(np.ascontiguousarray(slope))
    at.add("c", slope.numpy() if groups is None else [torch.diag_embed(slope[rows]) for rows in groups.rows])


def _scores(at: Cotangents) -> Any:
    """S = diag C_GG⁻¹M_GG C_GG⁻¹, the squared norms of leave-one-out residuals."""
    system, M = at.system, at.system.form_product(at.form)
    if system.groups is not None:
        at.blocks, at.form_blocks = system.inverse_blocks(), list(system.groups.blocks(M))
        return system.groups.norms(tuple(at.form_blocks), tuple(at.blocks), M).numpy()
    return M.diagonal().numpy().clip(0.0) / system.left_out_diagonal() ** 2


def _pull_back_scores(at: Cotangents, slope: Any) -> None:
    system = at.system
    if system.groups is not None:
        _pull_back_block_scores(at, system.groups, torch.from_numpy(np.ascontiguousarray(slope)))
        return
    q, c = system._M.diagonal().numpy(), system.left_out_diagonal()
    at.add("forms", slope / (c * c) * (q >= 0.0))
    system.pull_back_diagonal(at, -2.0 * slope * q.clip(0.0) / (c * c * c))


def _pull_back_block_scores(at: Cotangents, groups: Units, slope: Tensor) -> None:
    """S_i = e_iᵀC⁻¹MC⁻¹e_i: M̄ = C⁻¹ diag(s) C⁻¹, and C̄ = −(M̄ M C⁻¹ + its transpose)."""
    forms, inverses = [], []
    for rows, C, M in zip(groups.rows, at.blocks, at.form_blocks, strict=True):
        half = torch.linalg.solve(C, torch.diag_embed(slope[rows]))
        M_bar = torch.linalg.solve(C, half.mT)
        forms.append(M_bar)
        inverses.append(-2.0 * torch.linalg.solve(C, M.mT @ M_bar.mT).mT)
    at.add("forms", forms)
    at.add("c", inverses)


def _pull_back_squared_norm(at: Cotangents, slope: Any) -> None:
    at.add("V", slope * at.system.P)
    at.add("P", slope * at.system.V)


def _pull_back_sup_diagonal(at: Cotangents, slope: Any) -> None:
    at.sup_slope += float(slope)


def _pull_back_density(at: Cotangents, slope: Any) -> None:
    at.density += float(slope)


QUANTITIES: dict[str, Quantity] = {
    "coefficients": Quantity(lambda at: at.system.V, lambda at, slope: at.add("V", slope)),
    "fitted": Quantity(lambda at: at.system.P, lambda at, slope: at.add("P", slope)),
    "leave_one_out": Quantity(_leave_one_out, _pull_back_leave_one_out),
    "inverse_diagonal": Quantity(lambda at: at.system.inverse_diagonal, _pull_back_inverse_diagonal),
    "squared_norm": Quantity(lambda at: np.vdot(at.system.V, at.system.P), _pull_back_squared_norm),
    "sup_diagonal": Quantity(lambda at: at.sup_diagonal, _pull_back_sup_diagonal),
    "negative_log_density": Quantity(lambda at: np.float64(at.system.negative_log_density()), _pull_back_density),
    "scores": Quantity(_scores, _pull_back_scores),
}
"""The quantities of ``kernel_embed.objectives.base.QUANTITIES``, and S of ``LeaveOneOutScore``, from a factor."""
