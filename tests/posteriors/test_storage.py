"""Draws on disk and in ArviZ's form, and back."""

import copy

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

import kernel_embed as ke

from .sampling import draw


def test_save_and_load_without_pickle(tmp_path, multiclass, problem):
    embedding, posterior = multiclass
    posterior.save(tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz", allow_pickle=False) as archive:
        assert "u" in archive.files
    again = ke.load_posterior(tmp_path / "p.npz", embedding, ke.ConditionalEvidence())
    assert type(again) is type(posterior) is ke.posteriors.MulticlassPosterior
    assert torch.equal(again.probabilities(problem.query), posterior.probabilities(problem.query))
    assert again.method == "laplace"
    assert again.kind == posterior.kind
    more = copy.deepcopy(embedding)
    more.num_classes = problem.m + 1
    (tmp_path / "no.npz").write_bytes(b"something else")
    np.savez_compressed(tmp_path / "old.npz", u=np.zeros(3), settings=np.array("{}"))
    evidence, other = ke.ConditionalEvidence(), ke.MulticlassEmbedding(RBFKernel(), problem.m)
    for message, name, *arguments in (
        ("Give the objective", "p", embedding, ke.LeaveOneOutRisk()),
        ("as it was sampled", "p", other, evidence),
        (f"has num_classes={problem.m}", "p", more, evidence),
        (r"no\.npz is not a posterior file", "no", embedding, evidence),
        (r"old\.npz was written by an earlier development version.*save again", "old", embedding, evidence),
    ):
        with pytest.raises(ValueError, match=message):
            ke.load_posterior(tmp_path / f"{name}.npz", *arguments)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_arviz_agrees_about_r_hat(problem):
    arviz = pytest.importorskip("arviz")
    posterior = draw(
        ke.MulticlassEmbedding(RBFKernel(), problem.m), ke.ConditionalEvidence(), problem.x, problem.y, num_samples=60
    )
    data = posterior.to_arviz()
    assert data.posterior["regularization"].shape == (2, 60)
    theirs = arviz.rhat(data, method="split")["regularization"].item()
    assert posterior.summary()["regularization"]["r_hat"].item() == pytest.approx(theirs, abs=1e-3)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_lengthscales_in_arviz_have_the_names_of_their_columns():
    pytest.importorskip("arviz")
    x = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2, active_dims=[2, 0]) + RBFKernel(ard_num_dims=3)) + RBFKernel()
    embedding = ke.BayesianMeanEmbedding(kernel.double())
    posterior = ke.sample_posterior(embedding, ke.EmbeddingEvidence(), x, num_samples=5, sampler=ke.Laplace())
    data = posterior.to_arviz(feature_names=["age", "height", "weight"]).posterior
    prefix = "kernel.kernels.0.base_kernel.kernels"
    assert data[f"{prefix}.0.lengthscale_dim_1"].values.tolist() == ["weight", "age"]
    assert data[f"{prefix}.1.lengthscale_dim_1"].values.tolist() == ["age", "height", "weight"]
    assert data["kernel.kernels.1.lengthscale_dim_1"].values.tolist() == [0]  # one for all columns
    age = data[f"{prefix}.0.lengthscale"].sel({f"{prefix}.0.lengthscale_dim_1": "age"}).values
    assert np.array_equal(age, posterior.samples_by_chain[f"{prefix}.0.lengthscale"][..., 1].numpy())
    with pytest.raises(ValueError, match="x has 3 columns, but feature_names has 1 names"):
        posterior.to_arviz(feature_names=["age"])


def test_a_number_is_no_path_and_the_file_of_that_number_stays_open(tmp_path):
    embedding = ke.MulticlassEmbedding(RBFKernel(), 3)
    with (tmp_path / "of_the_caller").open("wb") as file:
        with pytest.raises(TypeError, match=r"A path must be a str or a pathlib\.Path, not \d+"):
            ke.load_posterior(file.fileno(), embedding, ke.ConditionalEvidence())
        file.write(b"still open")
