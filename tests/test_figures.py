"""The README example and the public functions give the figures recorded here, to rounding."""

import pathlib
import re
import warnings

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.priors import GammaPrior
from sklearn.datasets import load_iris

import kernel_embed as ke

README = (pathlib.Path(__file__).parents[1] / "README.md").read_text()

BEFORE = {
    "fit value": [0.302382204602],
    "probabilities": [
        1.0, 0.0, 0.0, 0.925024260346, 0.0749757396536, 0.0,
        0.983633686544, 0.0163663134556, 0.0, 0.988868616524, 0.0, 0.0111313834757,
        0.621959714954, 0.378040285046, 0.0,
    ],
    "entropy": [0.0, 0.266323509621, 0.0835386056174, 0.0611380146226, 0.663096595705],
    "bound": [2.66773370117],
    "regularization": [0.00566168185136],
    "classifier": [
        0.993304139014, 0.00300257139303, 0.00369328959282, 0.994649495308, 0.0022395968928, 0.00311090779884,
        0.993985086904, 0.00280151731155, 0.00321339578473, 0.996741103541, 0.00128045273508, 0.00197844372417,
        0.995018336718, 0.00205319380428, 0.00292846947732,
    ],
    "two-sample": [3.87671218659, 0.003996003996],
    "independence": [0.001998001998],
    "evidence": [116.599182853],
    "vote": [0.0235038249431, 4.0],
    # Of the trajectories as they are walked now; long runs of them are compared with quadrature elsewhere.
    "draws": [
        1.46728914598, 1.30461923198, 1.47928098791, 1.46640857388, 1.21970113432,
        1.22554676855, 1.43168477873, 1.33422313539, 1.32865657787, 1.35710889801,
    ],
}  # fmt: skip
"""Written by the code of commit 7728e2c, one thread; digits beyond the twelfth depend on the order of sums."""


@pytest.fixture(scope="module")
def readme():
    """What the names in the README's example are after it has run."""
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    return names


def close(name, values, rtol=1e-8):
    np.testing.assert_allclose(np.asarray(values, dtype=float).ravel(), BEFORE[name], rtol=rtol, atol=1e-10)


def test_the_readme_computes_what_it_did(readme):
    conditioned, x = readme["conditioned"], readme["x"]
    close("probabilities", conditioned.probabilities(x[:5]))
    close("entropy", conditioned.entropy(x[:5]))
    close("bound", [ke.generalization_bound(conditioned, form="tight").value])
    close("regularization", [readme["embedding"].regularization.item()])
    close("fit value", [readme["objective"](readme["embedding"], x, readme["y"]).item()])


def test_the_classifier_computes_what_it_did():
    x, y = load_iris(return_X_y=True)
    classifier = ke.MulticlassEmbeddingClassifier(objective=ke.default_objective()).fit(x[::2], y[::2])
    close("classifier", classifier.predict_proba(x[1::2])[:5], rtol=1e-6)


def test_the_vote_computes_what_it_did():
    x, y = load_iris(return_X_y=True)
    vote = ke.VotedKernelClassifier(lam=1e-2, beta=1e-3).fit(x[:100], y[:100])
    close("vote", [vote.objective_, vote.num_votes_])


def test_tests_evidence_and_draws_are_what_they_were():
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    b = 1.5 * torch.randn(70, 2, generator=generator, dtype=torch.float64)
    result = ke.two_sample_test(a, b, seed=0)
    close("two-sample", [result.statistic, result.pvalue])
    close("independence", [ke.independence_test(a[:, :1], a[:, 1:] + a[:, :1] ** 2, seed=0).pvalue])
    mean = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
    close("evidence", [ke.fit(mean, ke.EmbeddingEvidence(), a).value])
    kernel = gpytorch.kernels.RBFKernel(lengthscale_prior=GammaPrior(2.0, 2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ke.posteriors.PosteriorWarning)
        posterior = ke.sample_posterior(
            ke.BayesianMeanEmbedding(kernel), ke.EmbeddingEvidence(), a,
            num_samples=10, warmup_steps=10, num_chains=1, seed=0,
        )  # fmt: skip
    close("draws", posterior.samples["kernel.lengthscale"], rtol=1e-6)
