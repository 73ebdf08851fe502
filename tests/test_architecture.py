"""The walks of the architecture page: which files one prediction, one gradient step, one draw and one test pass."""

import pathlib
import re
import sys
from collections.abc import Callable

import gpytorch
import pytest
import torch

import kernel_embed as ke

PAGE = (pathlib.Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
UNNAMED = ("<module>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>")


def files(call: Callable[[], object]) -> list[str]:
    """The files of the package whose functions ``call`` enters, in order."""
    found: list[str] = []

    def watch(frame, event, argument):
        path = frame.f_code.co_filename
        if event == "call" and "/kernel_embed/" in path and frame.f_code.co_name not in UNNAMED:
            name = path.rsplit("/kernel_embed/", 1)[-1]
            if name not in found:
                found.append(name)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


@pytest.fixture(scope="module")
def walks():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(60, 3, generator=generator, dtype=torch.float64)
    y = (x.sum(-1) * 2 % 3).long()
    kernel = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=3)
    embedding = ke.MulticlassEmbedding(kernel, num_classes=3).double()
    objective = ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n")
    prior = gpytorch.priors.GammaPrior(2.0, 2.0)
    mean = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel(lengthscale_prior=prior).double())
    evidence, settings = ke.EmbeddingEvidence(), {"num_samples": 1, "warmup_steps": 0, "num_chains": 1, "seed": 0}
    conditioned = embedding.condition(x, y)
    return {
        "one conditioning": lambda: embedding.condition(x, y).V,
        "one prediction": lambda: conditioned.probabilities(x[:5]),
        "one gradient step": lambda: objective(embedding, x, y).backward(),
        "one step of `fit`": lambda: ke.fit(embedding, objective, x, y, max_evaluations=1),
        "one draw": lambda: ke.sample_posterior(mean, evidence, x, **settings),
        "one test": lambda: ke.two_sample_test(x[:30], x[30:], num_permutations=50, seed=0),
    }


NAMES = re.findall(r"^\| (one [^|]+?) \| (\d+) \|$", PAGE, flags=re.MULTILINE)


@pytest.mark.filterwarnings("ignore::kernel_embed.posteriors.PosteriorWarning")
@pytest.mark.parametrize(("name", "count"), NAMES)
def test_no_call_passes_more_files_than_the_page_says(walks, name, count):
    passed = files(walks[name])
    assert len(passed) <= int(count), f"{name} passes {len(passed)} files, the page says {count}: {passed}"


def test_there_are_six_call_paths_and_a_prediction_is_short():
    assert len(NAMES) == 6
    assert int(dict(NAMES)["one prediction"]) <= 12
