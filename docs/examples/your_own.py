"""A kernel, an objective, an optimizer and a sampler of your own: registered, checked by the suites, learned with.

Run it with ``python docs/examples/your_own.py``, or let pytest run the suites with ``python -m pytest
docs/examples/your_own.py``.
"""

from __future__ import annotations

import gpytorch
import numpy as np
import torch

import kernel_embed as ke
from kernel_embed.kernels import RadialProfile
from kernel_embed.learning import Optimizer, Outcome
from kernel_embed.posteriors import Draws, Sampler
from kernel_embed.testing import KernelContract, ObjectiveContract, OptimizerContract, SamplerContract

# --- a kernel: k(x, x') = 1 / (1 + s), s = ‖(x − x') / ℓ‖² -----------------------------------------------------------


class Cauchy(gpytorch.kernels.Kernel):
    """The rational quadratic of order one."""

    has_lengthscale = True

    def forward(self, x1, x2, diag=False, **params):
        """1 / (1 + s)."""
        return 1.0 / (1.0 + self.covar_dist(x1 / self.lengthscale, x2 / self.lengthscale, diag, square_dist=True))


# φ = e^E with E = −log(1 + s), φ' = −e^E · e^E, φ'' = 2 e^{2E} · e^E; −s/2 is what comes in.
ke.register(
    Cauchy,
    profile=RadialProfile(
        exponent=lambda halves: -torch.log1p(-2.0 * halves),
        factors=lambda E: (1.0, -E.exp()),
        curvature=lambda E: 2.0 * (2.0 * E).exp(),
    ),
)


class TestCauchy(KernelContract):
    """Everything that was registered, against the kernel itself."""

    def make_kernel(self):
        return Cauchy()


# --- an objective: the leave-one-out Brier score ----------------------------------------------------------------------


class LeaveOneOutBrier(ke.Objective):
    """(1/n) Σ ‖y_i − f₋ᵢ(x_i)‖²."""

    def evaluate(self, bound):
        """From the values that each point's own embedding has not seen."""
        return (bound.Y - bound.leave_one_out()).square().sum(-1).mean(-1)

    def __repr__(self):
        return "LeaveOneOutBrier()"


class TestLeaveOneOutBrier(ObjectiveContract):
    """Value, gradient, sums."""

    def make_objective(self):
        return LeaveOneOutBrier()


# --- an optimizer: a random search ------------------------------------------------------------------------------------


class RandomSearch(Optimizer):
    """Thirty points around the best one so far."""

    def minimize(self, problem):
        """Evaluate, record, and let ``fit`` keep the best."""
        problem.record(problem.evaluate(problem.start))
        for _ in range(30):
            step = 0.3 * problem.generator.standard_normal(len(problem.start))
            problem.record(problem.evaluate(problem.best_point + step))
        return Outcome(False, "looked at 31 points")


class TestRandomSearch(OptimizerContract):
    """It lowers the objective, and honors a seed."""

    def make_optimizer(self):
        return RandomSearch()


# --- a sampler: random-walk Metropolis --------------------------------------------------------------------------------


class Metropolis(Sampler):
    """A Gaussian step in log θ, accepted by the ratio of densities."""

    def sample(self, potential, plan):
        """One chain from each start."""
        chains = []
        for u, seed in zip(plan.starts, plan.seeds, strict=True):
            generator, energy, chain = np.random.default_rng(seed), potential.value(u), []
            for _ in range(plan.warmup_steps + plan.num_samples):
                there = u + 0.4 * generator.standard_normal(len(u))
                proposed = potential.value(there)
                if np.log(generator.uniform()) < energy - proposed:
                    u, energy = there, proposed
                chain.append((u, -energy))
                plan.bar.update()
            chains.append(chain[plan.warmup_steps :])
        points = torch.tensor(np.array([[point for point, _ in chain] for chain in chains]))
        heights = torch.tensor([[height for _, height in chain] for chain in chains])
        return Draws(points, heights)


class TestMetropolis(SamplerContract):
    """Against quadrature."""

    num_samples, warmup_steps = 300, 60

    def make_sampler(self):
        return Metropolis()


# --- learn with them --------------------------------------------------------------------------------------------------


def main():
    """Run the suites, learn by the objective, draw by the sampler."""
    for suite in (TestCauchy(), TestLeaveOneOutBrier(), TestRandomSearch(), TestMetropolis()):
        checks = [name for name in dir(suite) if name.startswith("test_")]
        for check in checks:
            getattr(suite, check)()
        print(f"{type(suite).__name__}: {len(checks)} checks passed")
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(80, 2, generator=generator, dtype=torch.float64)
    y = (torch.sin(6.0 * x[:, 0]) + x[:, 1] > 0.5).long()
    embedding = ke.MulticlassEmbedding(Cauchy(), num_classes=2)
    for optimizer in (RandomSearch(), ke.LBFGS()):
        result = ke.fit(embedding, LeaveOneOutBrier(), x[::2], y[::2], optimizer=optimizer, seed=0)
        print(f"{type(optimizer).__name__}: leave-one-out Brier score {result.value:.3f}")
    accuracy = (embedding.condition(x[::2], y[::2]).predict(x[1::2]) == y[1::2]).double().mean()
    posterior = ke.sample_posterior(
        embedding, ke.ConditionalEvidence(), x[::2], y[::2], num_samples=400, num_chains=2, seed=0, sampler=Metropolis()
    )
    averaged = (posterior.predict(x[1::2]) == y[1::2]).double().mean()
    print(f"accuracy {accuracy:.2f}, averaged over {posterior.method} draws {averaged:.2f}")


if __name__ == "__main__":
    main()
