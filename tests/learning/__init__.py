"""Objectives that misbehave on purpose, and a fit of the shared problem."""

import torch
from linear_operator.utils.errors import NotPSDError

import kernel_embed as ke

from ..conftest import rbf


class Raising(ke.LeaveOneOutRisk):
    """Raises ``error`` at the evaluations in ``at``, counted from 1."""

    def __init__(self, error, at):
        super().__init__()
        self.error, self.at, self.count = error, set(at), 0

    def evaluate(self, conditioned):
        self.count += 1
        if self.count in self.at:
            raise self.error
        return super().evaluate(conditioned)


class NotPSD(Raising):
    """Refuses some points, as a kernel that loses definiteness would."""

    def __init__(self, at):
        super().__init__(NotPSDError("Expected a positive definite matrix."), at)


class NotFinite(Raising):
    """NaN at some evaluations."""

    def __init__(self, at):
        super().__init__(None, at)

    def evaluate(self, conditioned):
        self.count += 1
        value = ke.LeaveOneOutRisk.evaluate(self, conditioned)
        return value * float("nan") if self.count in self.at else value


def state(embedding):
    """A copy of all parameters."""
    return torch.cat([p.detach().flatten().clone() for p in embedding.parameters()])


def learn(problem, objective=None, **how):
    """An embedding of the problem, and how ``fit`` ended."""
    embedding = ke.MulticlassEmbedding(rbf(), problem.m)
    how = {"seed": 0} | how
    return embedding, ke.fit(embedding, objective or ke.LeaveOneOutRisk(), problem.x, problem.y, **how)
