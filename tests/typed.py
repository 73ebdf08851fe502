"""What mypy must see at the seams; it reads this file, and nothing runs it."""

import torch
from gpytorch.kernels import RBFKernel
from typing_extensions import assert_type

import kernel_embed as ke
from kernel_embed.embeddings import ConditionedEmbedding, ConditionedMeanEmbedding, ConditionedMulticlass
from kernel_embed.posteriors import ConditionalPosterior, MeanPosterior, MulticlassPosterior

x, y = torch.zeros(4, 1), torch.zeros(4, dtype=torch.long)
multiclass = ke.MulticlassEmbedding(RBFKernel(), num_classes=2)
conditional = ke.ConditionalEmbedding(RBFKernel())
mean = ke.BayesianMeanEmbedding(RBFKernel())

assert_type(multiclass.condition(x, y), ConditionedMulticlass)
assert_type(conditional.condition(x, y), ConditionedEmbedding)
assert_type(mean.condition(x), ConditionedMeanEmbedding)
assert_type(multiclass.regularization, torch.Tensor)

assert_type(ke.sample_posterior(multiclass, ke.ConditionalEvidence(), x, y), MulticlassPosterior)
assert_type(ke.sample_posterior(conditional, ke.ConditionalEvidence(), x, y), ConditionalPosterior)
assert_type(ke.sample_posterior(mean, ke.EmbeddingEvidence(), x), MeanPosterior)

risk: ke.Objective[ConditionedMulticlass] = ke.LeaveOneOutRisk() + 0.5 * ke.RademacherComplexity("4e/n")
ke.fit(multiclass, risk, x, y)
ke.fit(mean, ke.EmbeddingEvidence(), x)
