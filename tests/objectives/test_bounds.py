"""Bounds of eq. (11), sharp, peeled, held-out and PAC-Bayes: by hand, in order, and how often they fail."""

import collections
import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel

import kernel_embed as ke
from kernel_embed.objectives import EmpiricalScore, RiskBound, holdout_bound, kl_inverse, pac_bayes_bound, score_bound
from kernel_embed.objectives.bounds import STEP
from kernel_embed.objectives.risk import clipped_cross_entropy

from .. import oracles
from ..conftest import named_kernels, rbf

DRAWS, BETA, LAM = 60, 0.2, 0.02


def label_probability(x):
    return torch.where(x.squeeze(-1) < 0.5, 0.9, 0.15)


def labels(n: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    return x, (torch.rand(n, generator=generator) < label_probability(x)).long()


def embedding(regularization: float = 0.3, lengthscale: float = 0.3) -> ke.MulticlassEmbedding:
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    return ke.MulticlassEmbedding(kernel, 2, regularization).double().requires_grad_(False)


def true_risk(conditioned, brier: bool = False) -> float:
    """The exact expected loss: clipped at 1/e, or the Brier score of decision probabilities."""
    grid = (torch.arange(400, dtype=torch.float64).unsqueeze(-1) + 0.5) / 400
    p, F = label_probability(grid), conditioned.decision_probabilities(grid)
    one_hot = torch.eye(2, dtype=torch.float64)
    losses = [
        (F - one_hot[c]).square().sum(-1) if brier else clipped_cross_entropy(F[:, c], 1.0 / math.e) for c in (0, 1)
    ]
    return float((p * losses[1] + (1 - p) * losses[0]).mean())


def exceeded(draws: int = DRAWS, n: int = 40, beta: float = BETA) -> dict[str, float]:
    """The share of samples with a true risk above each bound of confidence 1 − β; n rows train, n rows validate."""
    grid = [embedding(regularization) for regularization in (0.01, 0.1, 1.0)]
    kernels = [embedding(0.1, lengthscale) for lengthscale in (0.1, 0.3, 1.0)]
    objective = RiskBound(1 - beta, len(kernels))
    failures = collections.Counter[str]()
    for seed in range(draws):
        x, y = labels(2 * n, seed)
        validation = (x[n:], y[n:])
        fitted = [one.condition(x[:n], y[:n]) for one in grid]
        risks = [true_risk(c) for c in fitted]
        for form in ("tight", "sharp", "peeled"):
            failures[form] += risks[1] > ke.generalization_bound(fitted[1], 1 - beta, form, epsilon=1.0 / math.e).value
        values = [objective(one, x[:n], y[:n]).item() for one in kernels]
        least = min(range(len(kernels)), key=values.__getitem__)
        failures["grid"] += true_risk(kernels[least].condition(x[:n], y[:n])) > values[least]
        bounds = [
            ke.generalization_bound(c, 1 - beta, "holdout", holdout=validation, candidates=3).value for c in fitted
        ]
        best = min(range(3), key=bounds.__getitem__)
        failures["holdout"] += risks[best] > bounds[best]
        right = [c.decision_probabilities(validation[0]).gather(-1, validation[1][:, None])[:, 0] for c in fitted]
        gibbs = pac_bayes_bound(torch.stack([clipped_cross_entropy(p, 1.0 / math.e) for p in right]), 1 - beta)
        failures["pac-bayes"] += float(gibbs.weights @ torch.tensor(risks, dtype=torch.float64)) > gibbs.value
        failures["score"] += true_risk(fitted[1], brier=True) > score_bound(fitted[1], 1 - beta).value
    return {form: count / draws for form, count in failures.items()}


def test_the_sharp_form_by_hand(problem):
    conditioned = ke.MulticlassEmbedding(rbf(), problem.m, 0.02).condition(problem.x, problem.y)
    tight, sharp, once = (ke.generalization_bound(conditioned, form=f) for f in ("tight", "sharp", "peeled"))
    n = conditioned.num_data
    assert sharp.complexity_term == pytest.approx(0.5 * tight.complexity_term)
    assert sharp.confidence_term == pytest.approx(math.sqrt(math.log(20) / (2 * n)))
    assert sharp.empirical_risk == pytest.approx(ke.EmpiricalRisk(1 / math.e).evaluate(conditioned).item())
    assert sharp.empirical_risk <= tight.empirical_risk
    assert sharp.complexity <= once.complexity <= STEP * sharp.complexity * (1 + 1e-9)
    assert (tight.is_certificate, sharp.is_certificate, once.is_certificate) == (False, False, True)
    assert "chosen without these rows" in once.conditions
    more = ke.generalization_bound(conditioned, form="peeled", candidates=10)
    assert more.value > once.value
    linear = ke.MulticlassEmbedding(LinearKernel().double(), problem.m).condition(problem.x, problem.y)
    assert not ke.generalization_bound(linear, form="peeled").is_certificate  # α is known on the data alone


@pytest.mark.parametrize("regularization", [1e-3, 0.1, 1e6])
def test_the_bound_is_an_objective(regularization, problem):
    made = ke.MulticlassEmbedding(rbf(), problem.m, regularization)
    bound = ke.generalization_bound(made.condition(problem.x, problem.y), 0.9, "peeled", candidates=7)
    objective = RiskBound(0.9, candidates=7)
    assert objective(made, problem.x, problem.y).item() == pytest.approx(bound.value, rel=1e-9)
    assert repr(objective) == "RiskBound(confidence=0.9, candidates=7)"
    assert (0.5 * objective + ke.EmpiricalRisk())(made, problem.x, problem.y).item() > 0.5 * bound.value
    # Its gradient is that of the risk and of r scaled to r_j.
    raw = made.kernel.raw_lengthscale
    (found,) = torch.autograd.grad(objective(made, problem.x, problem.y), raw)
    r, smooth = ke.RademacherComplexity(), ke.EmpiricalRisk(1 / math.e)
    factor = bound.multiplier * bound.complexity / r(made, problem.x, problem.y).item()
    (expected,) = torch.autograd.grad((factor * r + smooth)(made, problem.x, problem.y), raw)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    ("sup", "certified"),
    [
        (ke.kernels.NominalDiagonal(1.0), False),
        (ke.kernels.MeanDiagonal(), False),
        (lambda kernel, diagonal: diagonal.amax(-1), False),
        (100.0, True),
        (ke.LipschitzBound(10.0), True),
    ],
)
def test_a_certificate_rests_on_a_bound_of_the_diagonal(sup, certified, problem):
    network = ke.FeatureKernel(torch.nn.Linear(problem.x.shape[-1], 2).double())
    target = RBFKernel().double()
    classes = ke.MulticlassEmbedding(network, problem.m, 0.02, sup_diagonal=sup).condition(problem.x, problem.y)
    assert classes.sup_diagonal.is_bound is certified
    assert ke.generalization_bound(classes, form="peeled").is_certificate is certified
    embedding = ke.ConditionalEmbedding(network, 0.02, target, sup_diagonal=sup)
    scored = embedding.condition(problem.x, problem.y.double().unsqueeze(-1))
    assert ke.objectives.score_bound(scored).is_certificate is certified


@pytest.mark.parametrize("form", ["paper", "tight", "sharp", "peeled"])
def test_a_row_of_weight_three_counts_as_three(form, problem):
    embedding = ke.MulticlassEmbedding(rbf(), problem.m, 0.02)
    w = torch.ones(len(problem.x), dtype=torch.float64)
    w[:4] = 3.0
    rows = torch.arange(len(w)).repeat_interleave(w.long())
    once = ke.generalization_bound(embedding.condition(problem.x, problem.y, w), form=form)
    plain = ke.generalization_bound(embedding.condition(problem.x[rows], problem.y[rows]), form=form)
    assert once.value == pytest.approx(plain.value, rel=1e-9)
    assert not once.is_certificate  # weights may be anything, and rows must be drawn alike


def test_held_out_rows_say_most():
    x, y = labels(570, 0)
    conditioned = embedding(0.01).condition(x[:285], y[:285])
    holdout = (x[285:], y[285:])
    values = {f: ke.generalization_bound(conditioned, form=f).value for f in ("paper", "tight", "sharp", "peeled")}
    held_out = ke.generalization_bound(conditioned, form="holdout", holdout=holdout)
    assert held_out.value < values["sharp"] < values["peeled"] < values["tight"] < values["paper"]
    assert held_out.value < 1
    assert held_out.value == held_out.empirical_risk + held_out.confidence_term
    assert "held out" in held_out.conditions
    with pytest.raises(ValueError, match="needs holdout"):
        ke.generalization_bound(conditioned, form="holdout")


def test_hoeffding_and_bernstein_by_hand():
    losses = torch.tensor([0.0, 0.1, 0.0, 0.3], dtype=torch.float64)
    bound = holdout_bound(losses, 0.9, candidates=5)
    delta, m = 0.1 / 10, 4
    assert bound.hoeffding == pytest.approx(0.1 + math.sqrt(math.log(1 / delta) / 8))
    variance = np.var(losses.numpy(), ddof=1)
    log = math.log(2 / delta)
    assert bound.bernstein == pytest.approx(0.1 + math.sqrt(2 * variance * log / m) + 7 * log / 9)
    assert bound.value == min(bound.hoeffding, bound.bernstein)
    assert holdout_bound(losses[:1]).bernstein == math.inf


def test_every_bound_says_what_it_is_a_certificate_of():
    for found in (holdout_bound(torch.zeros(20)), pac_bayes_bound(torch.zeros(2, 20, dtype=torch.float64))):
        assert found.is_certificate
        assert "[0, 1]" in found.loss
        assert "rows that n" in found.conditions


def test_pac_bayes_by_hand():
    for q in (0.0, 0.2, 0.9):
        for c in (0.01, 0.5):
            p = kl_inverse(q, c)
            kl = (q * math.log(q / p) if q else 0.0) + (1 - q) * math.log((1 - q) / (1 - p))
            assert kl == pytest.approx(c, rel=1e-6)
    assert kl_inverse(1.0, 0.1) == 1.0
    losses = torch.rand(3, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    bound = pac_bayes_bound(losses, 0.9, temperature=0.2)
    R = losses.mean(1).numpy()
    Q = np.exp(-0.2 * 50 * R)
    Q /= Q.sum()
    divergence = (Q * np.log(3 * Q)).sum()
    np.testing.assert_allclose(bound.weights.numpy(), Q)
    assert bound.divergence == pytest.approx(divergence)
    expected = kl_inverse(float(Q @ R), (divergence + math.log(2 * math.sqrt(50) / 0.1)) / 50)
    assert bound.value == pytest.approx(expected)


def test_the_risk_exceeds_each_bound_no_more_often_than_beta():
    """Over 60 samples, at β = 0.2; a rule that failed exactly as often as allowed would pass 997 times in 1,000."""
    allowed = BETA + 2.8 * math.sqrt(BETA * (1 - BETA) / DRAWS)
    shares = exceeded(DRAWS, beta=BETA)
    assert all(share <= allowed for share in shares.values()), shares


def test_the_bound_for_any_target_by_hand():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(30, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(30, 3, generator=generator, dtype=torch.float64)
    target = RBFKernel().double()
    made = ke.ConditionalEmbedding(RBFKernel().double(), 0.1, target)
    conditioned = made.condition(x, y)
    K, L = ke.gram(made.kernel, x).detach(), ke.gram(target, y).detach()
    inverse = torch.linalg.inv(K + 30 * made.regularization.item() * torch.eye(30).double())
    W = inverse @ K  # column i: the weights at x_i
    score = (L.diagonal() - 2 * (L @ W).diagonal() + (W.T @ L @ W).diagonal()).mean().item()
    rho = (inverse @ K @ inverse @ L).trace().sqrt().item()
    bound = score_bound(conditioned, 0.9)
    assert bound.empirical_score == pytest.approx(score)
    assert EmpiricalScore()(made, x, y).item() == pytest.approx(score)
    assert bound.complexity == pytest.approx(rho)
    assert ke.RademacherComplexity()(made, x, y).item() == pytest.approx(rho)
    a, B = bound.rounded, 1.0
    assert rho <= a <= STEP * rho
    assert bound.complexity_term == pytest.approx(2 * (2 * B * a + a * a) / math.sqrt(30))
    assert bound.is_certificate
    with pytest.raises(ValueError, match="target kernel"):
        score_bound(ke.ConditionalEmbedding(RBFKernel().double()).condition(x, y))


@pytest.mark.parametrize("form", ["paper", "tight"])
@pytest.mark.parametrize(("confidence", "epsilon"), [(0.5, 1e-15), (0.95, 1e-6), (0.999, 0.3)])
@pytest.mark.parametrize("kernel", ["rbf", "matern52", "linear"])
def test_bound_equals_loops(form, confidence, epsilon, kernel, problem):
    k = named_kernels()[kernel]
    with torch.no_grad():
        K = k(problem.x).to_dense().numpy()
    y = problem.y.numpy()
    Y = oracles.one_hot(y, problem.m)
    risk = oracles.clipped_cross_entropy(K @ oracles.coefficients(K, Y, LAM), y, epsilon)
    r = oracles.rademacher_complexity(K, Y, LAM, max(K.diagonal()))
    conditioned = ke.MulticlassEmbedding(k, problem.m, LAM).condition(problem.x, problem.y)
    bound = ke.generalization_bound(conditioned, confidence, form, epsilon=epsilon)
    assert bound.value == pytest.approx(oracles.bound(risk, r, 24, 1 - confidence, form == "tight"), rel=1e-8)
    assert bound.empirical_risk == pytest.approx(risk, rel=1e-8)
    assert bound.complexity == pytest.approx(r, rel=1e-8)
    assert bound.multiplier == pytest.approx(4 * math.e / (math.sqrt(24) if form == "tight" else 1))
    assert bound.complexity_term == pytest.approx(bound.multiplier * r, rel=1e-8)
    assert bound.confidence_term == pytest.approx(math.sqrt(8 / 24 * math.log(2 / (1 - confidence))))
    assert bound.confidence == confidence
    assert bound.form == form
    assert bound.is_vacuous == (bound.value > 1)
    expected = "maximum over the data" if kernel == "linear" else "closed form"
    assert bound.sup_diagonal_source == expected


def test_the_tight_form_can_say_something():
    """Many rows of an easy problem: below 1, where the published form is not."""
    x = torch.cat([torch.zeros(1500, 1), torch.ones(1500, 1)]).double()
    y = torch.arange(3000) // 1500
    embedding = ke.MulticlassEmbedding(rbf(1, 0.1), 2, 0.2).requires_grad_(False)
    conditioned = embedding.condition(x, y)
    tight, paper = (ke.generalization_bound(conditioned, form=form) for form in ("tight", "paper"))
    assert tight.value < paper.value
    assert tight.complexity_term == pytest.approx(paper.complexity_term / math.sqrt(3000))
    assert not tight.is_vacuous
    assert paper.is_vacuous


BATCHED = ke.MulticlassEmbedding(RBFKernel(batch_shape=torch.Size([2])).double(), 3)
bound_of = ke.generalization_bound
REJECTED = [
    *[(lambda c, v=v: bound_of(c, v), "confidence between 0 and 1") for v in (0.0, 1.0, 95, float("nan"))],
    *[(lambda c, e=e: bound_of(c, epsilon=e), "epsilon between 0 and 1/e") for e in (0.0, 0.4)],
    (lambda c: bound_of(c, form="loose"), "Unknown form 'loose'. Choose one of 'paper', 'tight', "),
    (lambda c: bound_of(BATCHED.condition(c.x, c.y)), r"without batch shape, got \(2,\)"),
    (lambda c: holdout_bound(torch.tensor([0.5, 1.5])), r"must lie in \[0, 1\]"),
    (lambda c: holdout_bound(torch.tensor([-0.1])), r"must lie in \[0, 1\]"),
    (lambda c: holdout_bound(torch.zeros(3), 1.0), "confidence between"),
    (lambda c: pac_bayes_bound(torch.zeros(3)), "losses must have shape"),
]


@pytest.mark.parametrize(("call", "message"), REJECTED, ids=[str(i) for i in range(len(REJECTED))])
def test_bad_arguments(call, message, problem):
    with pytest.raises(ValueError, match=message):
        call(ke.MulticlassEmbedding(rbf(), problem.m).condition(problem.x, problem.y))
