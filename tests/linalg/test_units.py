"""Leave-group-out values, whole weights and parts of weights: against refits, finite differences and one another."""

import gpytorch
import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import kernel_embed as ke
from kernel_embed.learning.direct import direct_objective
from kernel_embed.learning.parameters import ParameterVector, Snapshot
from kernel_embed.linalg import DenseForm, DenseSystem, FeatureSystem, RidgePath, Units, repeated_rows

N = 14
GROUPS = torch.tensor([0, 1, 0, 2, 3, 3, 0, 4, 5, 5, 6, 7, 7, 7])


def generator():
    return torch.Generator().manual_seed(3)


def draw(*shape):
    return torch.randn(*shape, generator=generator(), dtype=torch.float64)


def embedding(classes=True, features=False):
    kernel = gpytorch.kernels.LinearKernel(ard_num_dims=3) if features else gpytorch.kernels.RBFKernel(ard_num_dims=3)
    if classes:
        return ke.MulticlassEmbedding(kernel, num_classes=3, regularization=0.02).double()
    return ke.ConditionalEmbedding(kernel, regularization=0.02).double()


def labels():
    return torch.arange(N) % 3


def soft_labels():
    return torch.rand(N, 3, generator=generator(), dtype=torch.float64).softmax(-1)


@pytest.mark.parametrize("features", [False, True], ids=["dense", "features"])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("groups", [GROUPS, None], ids=["groups", "rows"])
def test_leaving_out_a_group_equals_fitting_without_it(features, soft, weighted, groups):
    x, y = draw(N, 3), soft_labels() if soft else labels()
    w = 0.5 + 3.0 * torch.rand(N, generator=generator(), dtype=torch.float64) if weighted else None
    made = embedding(features=features)
    conditioned = made.condition(x, y, w, groups)
    values, ridge = conditioned.leave_one_out(), conditioned.system.ridge
    for label in (groups if groups is not None else torch.arange(N)).unique():
        out = (torch.arange(N) if groups is None else groups) == label
        part = conditioned.restricted((~out).nonzero().squeeze(-1))
        total = float(N - out.sum() if w is None else w[~out].sum())
        refit = embedding(features=features)
        refit.load_state_dict(made.state_dict())
        refit.regularization = ridge / total
        refitted = refit.condition(part.x, part.y, None if w is None else w[~out])
        torch.testing.assert_close(values[out], refitted.mean(x[out]), rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_without_a_group_are_those_of_a_refit(weighted):
    x, y = draw(N, 3), draw(N)
    w = 0.5 + torch.rand(N, generator=generator(), dtype=torch.float64) if weighted else None
    conditioned = embedding(classes=False).condition(x, y, w, GROUPS)
    scores = ke.objectives.leave_one_out_scores(conditioned, gpytorch.kernels.RBFKernel().double(), centered=False)
    L = gpytorch.kernels.RBFKernel().double()(y.unsqueeze(-1)).to_dense().detach()
    K, noise = conditioned.K.detach(), conditioned.system.noise.detach().expand(N)
    for i in range(N):
        kept = (GROUPS[i] != GROUPS).nonzero().squeeze(-1)
        v = torch.zeros(N, dtype=torch.float64)
        v[kept] = torch.linalg.solve(K[kept][:, kept] + torch.diag(noise[kept]), K[kept, i])
        v[i] -= 1.0
        torch.testing.assert_close(scores[i], v @ L @ v, rtol=0.0, atol=1e-8)


def test_a_part_of_the_weight_is_left_out_as_in_a_refit_with_the_rest():
    x, y = draw(N, 3), soft_labels()
    w = 1.0 + torch.rand(N, generator=generator(), dtype=torch.float64)
    shares = torch.linspace(0.1, 1.0, N, dtype=torch.float64)
    conditioned = embedding().condition(x, y, w, Units(shares=shares))
    K, ridge, Y = conditioned.K, conditioned.system.ridge, conditioned.Y
    for i in range(N):
        rest = w.clone()
        rest[i] *= 1.0 - shares[i]
        rest[i] = max(rest[i], 1e-14)
        value = K[i] @ torch.linalg.solve(K + torch.diag(ridge / rest), Y)
        torch.testing.assert_close(conditioned.leave_one_out()[i], value, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_blocks_and_forms_have_the_right_gradient(batch):
    units = Units(GROUPS[:8])
    R = torch.randn(*batch, 8, 8, generator=generator(), dtype=torch.float64).requires_grad_()
    ridge = torch.full(batch, 0.7, dtype=torch.float64, requires_grad=True)
    Y = torch.randn(*batch, 8, 2, generator=generator(), dtype=torch.float64).requires_grad_()
    w = (1.0 + torch.rand(8, generator=generator(), dtype=torch.float64)).requires_grad_()
    form = DenseForm(torch.eye(8, dtype=torch.float64) + 0.3)

    def values(R, ridge, Y, w):
        system = DenseSystem(R @ R.mT, ridge, w)
        V, P, c = system.regress_left_out(Y, units)
        return units.residuals(V, c, system.noise), P

    def scores(R, ridge, w):
        system = DenseSystem(R @ R.mT, ridge, w)
        return units.norms(*system.inverse_forms(form, units), system.noise)

    def through_features(R, ridge, w):
        return FeatureSystem(R[..., :3], ridge, w).inverse_parts(units)

    assert gradcheck(values, (R, ridge, Y, w))
    assert gradcheck(scores, (R, ridge, w))
    assert gradcheck(through_features, (R, ridge, w))
    assert gradcheck(lambda R, ridge: DenseSystem(R @ R.mT, ridge).inverse_parts(units), (R, ridge))


OBJECTIVES = [ke.LeaveOneOutRisk(below="linear"), ke.CalibratedLeaveOneOutRisk(), ke.LeaveOneOutScore()]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: type(objective).__name__)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("units", ["groups", "shares", "rows"])
def test_both_engines_agree_with_each_other_and_with_finite_differences(objective, weighted, units):
    classes = not isinstance(objective, ke.LeaveOneOutScore)
    x, y = draw(N, 3), labels() if classes else draw(N)
    w = 0.5 + torch.rand(N, generator=generator(), dtype=torch.float64) if weighted else None
    shares = Units(shares=torch.linspace(0.2, 1.0, N, dtype=torch.float64))
    left_out = {"groups": Units(GROUPS), "shares": shares, "rows": Units()}[units]
    made = embedding(classes)
    vector = ParameterVector(made, ())
    u = Snapshot.take(vector).point.copy()
    direct = direct_objective(made, objective, x, y, vector, w, left_out)
    value = direct(u)
    vector.clear_gradient()
    vector.set(u)
    by_autograd = objective.evaluate(made.attach(x, y, w, left_out))
    by_autograd.backward()
    assert sum(value.terms) == pytest.approx(by_autograd.item(), rel=1e-10)
    np.testing.assert_allclose(value.gradient, vector.gradient(), rtol=1e-8, atol=1e-10)
    step = 1e-6
    for k in range(len(u)):
        e = step * np.eye(len(u))[k]
        slope = (sum(direct(u + e).terms) - sum(direct(u - e).terms)) / (2.0 * step)
        assert value.gradient[k] == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_features_for_every_ridge_leave_groups_out_too():
    Z, Y, w = draw(N, 3), draw(N, 2), 1.0 + torch.rand(N, generator=generator(), dtype=torch.float64)
    units, path = Units(GROUPS), RidgePath.from_rows(Z, w)
    values = path.leave_one_out(path.rotate(Z), Y, (w.unsqueeze(-1) * Z).mT @ Y, 0.4, w, units)
    system = FeatureSystem(Z, torch.tensor(0.4, dtype=torch.float64), w)
    V, _, c = system.regress_left_out(Y, units)
    torch.testing.assert_close(values, Y - units.residuals(V, c, system.noise), rtol=0.0, atol=1e-10)


def test_equal_rows_are_found_and_repeated_observations_are_not_joined():
    x = draw(40, 4)
    assert repeated_rows(x, torch.zeros(40)) is None
    twice = torch.cat([x, x])
    assert torch.equal(
        repeated_rows(twice, torch.zeros(80)).labels[:40], repeated_rows(twice, torch.zeros(80)).labels[40:]
    )
    assert repeated_rows(twice, torch.arange(80)) is None
    assert repeated_rows(torch.tensor([[0.0], [-0.0]]), torch.zeros(2)).labels.tolist() == [0, 0]


@pytest.mark.parametrize("groups", [torch.zeros(3, dtype=torch.long), torch.zeros(N)], ids=["short", "float"])
def test_groups_are_checked(groups):
    with pytest.raises(ValueError, match="one whole number for each of the 14 rows"):
        embedding().condition(draw(N, 3), labels(), groups=groups)


def test_fit_leaves_groups_out():
    x = draw(20, 3).repeat_interleave(4, 0) + 1e-3 * draw(80, 3)
    y = (x[::4, 0] + draw(23)[3:] > 0).long().repeat_interleave(4)
    groups, risk = torch.arange(80) // 4, ke.LeaveOneOutRisk()
    alone, together = embedding(), embedding()
    ke.fit(alone, risk, x, y, progress=False, max_evaluations=12)
    result = ke.fit(together, risk, x, y, groups=groups, progress=False, max_evaluations=12)
    # Near copies predict each other, so that noise looks predictable.
    assert risk(alone, x, y).item() < 0.3 < 0.45 < result.value < risk(alone, x, y, groups=groups).item()
    assert result.value == pytest.approx(risk(together, x, y, groups=groups).item(), rel=1e-8)
