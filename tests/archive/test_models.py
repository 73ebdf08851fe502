"""Models as files: the same answers in another process, and nothing of the file is run."""

import subprocess
import sys
import zipfile

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_wine

import kernel_embed as ke
from kernel_embed.files import read_sealed, write_sealed
from kernel_embed.lab.compare.learners import learners

X, Y = load_wine(return_X_y=True)
X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
POINTS, LABELS = torch.tensor(X), torch.tensor(Y)


def classifier(**settings):
    return ke.MulticlassEmbeddingClassifier(max_evaluations=4, progress=False, **settings).fit(X, Y)


def embedding():
    prior = gpytorch.priors.GammaPrior(2.0, 3.0)
    matern = gpytorch.kernels.MaternKernel(1.5, ard_num_dims=13, lengthscale_prior=prior)
    kernel = gpytorch.kernels.ScaleKernel(matern + gpytorch.kernels.RBFKernel(active_dims=[0, 2]))
    return ke.MulticlassEmbedding(kernel, 3).double()


def frame():
    made = pd.DataFrame(X[:, :4], columns=list("abcd"))
    made["t"] = np.array(["u", "v", None], dtype=object)[Y % 3]
    return made


MODELS = {
    "classifier": (classifier, lambda m: m.predict_proba(X)),
    "embedding": (embedding, lambda m: m.condition(POINTS, LABELS).probabilities(POINTS).detach()),
    "conditioned": (lambda: embedding().condition(POINTS, LABELS), lambda m: m.probabilities(POINTS).detach()),
    "votes": (lambda: ke.VotedKernelClassifier().fit(X[:60], Y[:60]), lambda m: m.predict_proba(X)),
    "regressor": (
        lambda: ke.ConditionalEmbeddingRegressor(progress=False).fit(X[:50, :2], X[:50, 5]),
        lambda m: m.predict(X[:, :2]),
    ),
    "pipeline": (
        lambda: learners()["median heuristic"].for_tables().fit(frame(), Y),
        lambda m: m.predict_proba(frame()),
    ),
    "logistic": (lambda: learners()["logistic"].for_tables().fit(frame(), Y), lambda m: m.predict_proba(frame())),
    "svc": (lambda: learners()["svc grid"].for_tables().fit(frame(), Y), lambda m: m.predict_proba(frame())),
}


@pytest.mark.parametrize("name", list(MODELS))
def test_a_model_answers_the_same_after_loading(name, tmp_path):
    make, ask = MODELS[name]
    model = make()
    np.testing.assert_array_equal(ask(ke.load(ke.save(model, tmp_path / "m.ke"))), ask(model))


def test_plain_values_stay_what_they_are(tmp_path):
    values = [
        np.dtype("float32"),
        np.float64(0.1),
        slice(1, None, 2),
        torch.float32,
        torch.device("cpu"),
        torch.Size([2]),
    ]
    assert ke.load(ke.save(values, tmp_path / "m.ke")) == values


def test_another_process_answers_the_same(tmp_path):
    model = classifier()
    ke.save(model, tmp_path / "m.ke")
    np.save(tmp_path / "x.npy", X[:5])
    code = (
        "import sys, numpy as np, kernel_embed as ke\n"
        "model = ke.load(sys.argv[1] + '/m.ke')\n"
        "np.save(sys.argv[1] + '/p.npy', model.predict_proba(np.load(sys.argv[1] + '/x.npy')))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), model.predict_proba(X[:5]))


def test_what_is_shared_stays_shared_and_priors_work(tmp_path):
    model = embedding()
    model.also = model.kernel
    again = ke.load(ke.save(model, tmp_path / "m.ke"))
    assert again.also is again.kernel
    (_, module, prior, read, write), *_ = again.named_priors()
    torch.testing.assert_close(
        prior.log_prob(read(module)),
        model.kernel.base_kernel.kernels[0].lengthscale_prior.log_prob(model.kernel.base_kernel.kernels[0].lengthscale),
    )
    write(module, torch.full((1, 13), 0.7, dtype=torch.float64))
    assert module.lengthscale.detach().unique().item() == pytest.approx(0.7)
    ke.fit(again, ke.EmpiricalRisk(), POINTS, LABELS, max_evaluations=2, progress=False)  # parameters are still leaves


class Own(gpytorch.kernels.RBFKernel):
    """A kernel of the user's."""


def test_classes_of_the_user_are_named_when_loading(tmp_path):
    path = ke.save(ke.MulticlassEmbedding(Own(), 3).double(), tmp_path / "m.ke")
    with pytest.raises(ValueError, match=r"m\.ke .* the class tests\.archive\.test_models\.Own.*classes="):
        ke.load(path)
    for classes in ([Own], Own):
        assert isinstance(ke.load(path, classes=classes).kernel, Own)


def test_posteriors_have_files_of_their_own(tmp_path):
    objective, settings = ke.ConditionalEvidence(), {"num_samples": 4, "sampler": ke.Laplace(), "seed": 0}
    posterior = ke.sample_posterior(embedding(), objective, POINTS[::9], LABELS[::9], **settings)
    with pytest.raises(ValueError, match=r"Use posterior.save\(path\)"):
        ke.save(posterior, tmp_path / "posterior.ke")
    posterior.save(tmp_path / "posterior.npz")
    with pytest.raises(ValueError, match="read by load_posterior"):
        ke.load(tmp_path / "posterior.npz")


def rewritten(path, change):
    """The same file with another manifest, and a checksum that fits."""
    content, arrays = read_sealed(path, "model")
    change(content)
    write_sealed(path, "model", content, arrays)


def test_other_versions_earlier_formats_and_other_files_are_refused(tmp_path):
    path = ke.save({"a": np.arange(3), "b": float("nan")}, tmp_path / "m.ke")
    rewritten(path, lambda content: content.update(kernel_embed="9.9"))
    with pytest.raises(ValueError, match=r"m\.ke was written by kernel_embed 9\.9"):
        ke.load(path)
    rewritten(path, lambda content: content.update(format=99))
    with pytest.raises(ValueError, match=r"m\.ke .*format of another version"):
        ke.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("description.json", "{}")
    with pytest.raises(ValueError, match=r"m\.ke was written by an earlier development version.* Fit and save again"):
        ke.load(path)
    path.write_bytes(b"PK half a file")
    with pytest.raises(ValueError, match=r"m\.ke is not a model file"):
        ke.load(path)
    with pytest.raises(FileNotFoundError, match=r"File not found: .*none\.ke"):
        ke.load(tmp_path / "none.ke")


def test_another_version_of_a_library_is_said(tmp_path):
    path = ke.save({}, tmp_path / "m.ke")
    rewritten(path, lambda content: content["libraries"].update(torch="0.0.1"))
    with pytest.warns(UserWarning, match=r"saved with torch 0\.0\.1"):
        ke.load(path)


def test_other_code_of_the_classes_in_one_version_is_said(tmp_path):
    path, name = ke.save(embedding(), tmp_path / "m.ke"), ke.MulticlassEmbedding.__module__
    rewritten(path, lambda content: content["sources"].update({name: content["sources"][name] + 1}))
    with pytest.warns(UserWarning, match=rf"another state of kernel_embed .* in {name}\."):
        again = ke.load(path)
    assert torch.equal(again.kernel.outputscale, embedding().kernel.outputscale)


@pytest.mark.parametrize("package", ["lightgbm", "catboost"])
def test_models_of_boosting_libraries_are_refused_when_saving(package, tmp_path):
    library = pytest.importorskip(package)
    x, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    settings = (
        {"verbose": -1} if package == "lightgbm" else {"verbose": 0, "iterations": 3, "allow_writing_files": False}
    )
    model = getattr(library, {"lightgbm": "LGBMClassifier", "catboost": "CatBoostClassifier"}[package])(**settings)
    with pytest.raises(ValueError, match=r"[Ss]ave that part with its own library"):
        ke.save({"member": model.fit(x, y)}, tmp_path / "model.ke")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_described_is_named_and_nothing_is_written(tmp_path):
    def inner(x):
        return gpytorch.kernels.RBFKernel()

    with pytest.raises(ValueError, match=r"model\.kernel cannot be saved: .*inner"):
        ke.save(ke.MulticlassEmbeddingClassifier(kernel=inner), tmp_path / "m.ke")
    assert not list(tmp_path.iterdir())
    forest = learners()["random forest"].make().fit(X, Y)
    with pytest.raises(ValueError, match=r"model\S* cannot be saved: .*Tree"):
        ke.save(forest, tmp_path / "m.ke")
