"""Files from strangers: none runs a command, and each is refused quickly with an error that names it."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import sys
import time
import tracemalloc
import zipfile

import gpytorch
import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

import kernel_embed as ke
from kernel_embed.archive import load_checkpoint, read_plain, write_plain
from kernel_embed.archive.names import name_of
from kernel_embed.files import read_sealed

from .forge import HEADERS, forge, manifest, npy, pickled, seal, sealed


def refused(path, load=ke.load, error=ValueError):
    """The error of loading, which names the file and comes soon, without much memory and without a command."""
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(error) as caught:
            load(path)
        assert time.process_time() - began < 5
        assert tracemalloc.get_traced_memory()[1] < 2e8
    finally:
        tracemalloc.stop()
    assert path.name in str(caught.value)
    assert not path.with_name("sentinel").exists()
    return str(caught.value)


SYSTEM = {"function": "os:system"}
SOFTPLUS = {"object": "torch.nn.modules.activation:Softplus", "state": {}}
RELU = "torch.nn.modules.activation:ReLU"
FUNCTIONS = (
    *("os:system", "posix:system", "builtins:eval", "torch:load", "numpy:load", "kernel_embed.files:os.system"),
    *("kernel_embed.results:pathlib.os.system", "kernel_embed.cli:main", "torch:exp.__class__", ["os", "system"]),
)
CLASSES = (
    *("torch.nn:Module.__subclasses__", "posix:DirEntry", "builtins:type"),
    "gpytorch.constraints.constraints:Interval",  # on the list, but no kernel
)
OBJECTS = {
    "subprocess:Popen": {"args": "touch sentinel"},
    "pathlib:PosixPath": {},
    "tempfile:TemporaryDirectory": {"name": "/tmp"},
    "joblib.memory:Memory": {"location": "."},
    "sklearn.ensemble._forest:RandomForestClassifier": {},
    "functools:partial": {},
    "torch.nn.modules.module:_WrappedHook": {"hook": SYSTEM},
    "torch.jit._script:ScriptModule": {},
    "kernel_embed.results:Results": {"_path": "sentinel"},
    "kernel_embed.posteriors.sampler:ChainFile": {"path": "sentinel"},
    "kernel_embed.archive.state:gpytorch.kernels.RBFKernel": {},  # through an import
    "gpytorch.kernels:RBFKernel": {},  # by another name
    "kernel_embed.objectives.base:Objective": {},  # an abstract base
    RELU: [["inplace", False]],  # a state that is a list
}
NODES = [
    *({"function": name} for name in FUNCTIONS),
    *({"class": name} for name in CLASSES),
    *({"object": name, "state": state} for name, state in OBJECTS.items()),
    {"partial": SYSTEM, "arguments": ["touch sentinel"]},
    {"partial": {"class": "subprocess:Popen"}, "arguments": ["touch sentinel"]},
    {"partial": SOFTPLUS, "arguments": []},
    {"partial": "os.system", "arguments": []},
    {"method": "system", "of": {"class": "builtins:object"}},
    {"reduce": ["os.system", ["touch sentinel"]]},
    # kinds, keys and references
    *({"unknown": 1}, {}, [1, 2], {"set": [{"list": []}]}, {"dict": [[SOFTPLUS, 1]]}, {"dict": [[{"list": []}, 1]]}),
    *({"dict": [1, 2]}, {"list": [{"ref": 7}]}, {"list": [{"ref": -1}]}, {"list": [{"ref": "0"}]}),
    {"tuple": [{"ref": 0}, {"ref": 1}]},
    # values
    *({"float": "1" * 10**6}, {"dtype": "load"}, {"numpy": "<U999999999999"}, {"numpy": "V8"}, {"size": [-1]}),
    *({"size": [10**30]}, {"slice": ["a", None, None]}, {"slice": [0, 2**80, None]}, {"array": "none"}),
    *({"objects": [1], "shape": [10**12]}, {"objects": [1, 2], "shape": [-1, 2]}),
    {"device": "cuda:0; touch sentinel"},
    {"tuple": [1], "of": RELU},
    {"tuple": [1], "of": name_of(ke.voting.Complexities)},  # fields are missing
]


@pytest.mark.parametrize("node", NODES, ids=lambda node: f"{node!s:.60}")
def test_a_hostile_description_is_refused(node, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(forge(tmp_path / "hostile.ke", node))
    refused(forge(tmp_path / "hostile.ke", {"dict": {"a": 1, "b": node}}))


def node_of(model, tmp_path):
    content, arrays = read_sealed(ke.save(model, tmp_path / "model.ke"), "model")
    return content["content"], arrays


def kernel(tmp_path):
    prior = gpytorch.priors.GammaPrior(2.0, 3.0)
    node, arrays = node_of(gpytorch.kernels.RBFKernel(lengthscale_prior=prior), tmp_path)
    return node, arrays, node["state"]["_modules"]["ordered" if "ordered" in node["state"]["_modules"] else "dict"]


EXP = {"function": "torch:exp"}
HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks"),
    *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_state_dict_pre_hooks"),
)
STATES = [
    *((name, {"dict": {"0": EXP}}) for name in HOOKS),
    *((name, EXP) for name in ("__reduce__", "__call__", "forward", "_compiled_call_impl")),
    ("__class__", {"class": "builtins:object"}),
    ("__dict__", {"dict": {}}),
    ("lengthscale", 1.0),  # a property
    ("", 1),
    ("a b", 1),
    ("training", "yes"),
    ("_non_persistent_buffers_set", {"list": []}),
    ("_parameters", {"list": []}),
    ("_parameters", {"dict": {"raw_lengthscale": 1.0}}),
    ("_modules", {"dict": {"raw_lengthscale_constraint": EXP}}),
    ("_modules", {"dict": [[1, SOFTPLUS]]}),
    ("_constraints", {"dict": {"raw_lengthscale": SOFTPLUS}}),
    ("_buffers", {"dict": {"a": SOFTPLUS}}),
    *(("_priors", {"dict": {"p": {"list": [SOFTPLUS, name, True]}}}) for name in ("forward", "raw_lengthscale")),
    ("_priors", {"dict": {"p": {"list": [1]}}}),
    ("_priors", {"list": []}),
]


@pytest.mark.parametrize(("name", "value"), STATES)
def test_a_hostile_state_of_a_module_is_refused(name, value, tmp_path):
    node, arrays, _ = kernel(tmp_path)
    refused(forge(tmp_path / "hostile.ke", {**node, "state": {**node["state"], name: value}}, arrays))


@pytest.mark.parametrize("parameter", ["__class__", "forward", "eval", "requires_grad_", "no_such", "a.b"])
def test_a_prior_is_on_a_parameter(parameter, tmp_path):
    node, arrays, _ = kernel(tmp_path)
    (entry,) = node["state"]["_priors"]["dict"].values()
    entry["list"][1] = parameter
    assert "not a parameter" in refused(forge(tmp_path / "hostile.ke", node, arrays))


LAYERS = "torch.nn.modules.container:Sequential"
TRANSFORMS = {
    "command": SYSTEM,
    "network": {"object": LAYERS, "state": {"_modules": {"dict": {"0": SOFTPLUS}}}},
    "kernel class": {"class": "gpytorch.kernels.rbf_kernel:RBFKernel"},
    "partial": {"partial": EXP, "arguments": []},
    "text": "os.system",
}


@pytest.mark.parametrize("place", ["_transform", "_inv_transform"])
@pytest.mark.parametrize("name", list(TRANSFORMS))
def test_a_hostile_transform_of_a_constraint_is_refused(name, place, tmp_path):
    node, arrays, modules = kernel(tmp_path)
    constraint = modules["raw_lengthscale_constraint"]["state"]
    modules_of_constraint = next(iter(constraint["_modules"].values()))
    if place in modules_of_constraint and name == "network":
        modules_of_constraint[place] = TRANSFORMS[name]
    else:
        modules_of_constraint.pop(place, None)
        constraint[place] = TRANSFORMS[name]
    refused(forge(tmp_path / "hostile.ke", node, arrays))


def changed(model, change, tmp_path):
    node, arrays = node_of(model, tmp_path)
    change(node["state"], arrays)
    return forge(tmp_path / "hostile.ke", node, arrays)


X, Y = np.random.RandomState(0).randn(40, 3), np.arange(40) % 3


@pytest.mark.parametrize(
    "change",
    [
        lambda state, a: a.update(_n_support=a["_n_support"] + 1000),
        lambda state, a: a.update(_n_support=-a["_n_support"]),
        lambda state, a: a.update(dual_coef_=a["dual_coef_"][:, :2]),
        lambda state, a: a.update(support_=a["support_"][:1]),
        lambda state, a: a.update(_intercept_=a["_intercept_"][:1]),
        lambda state, a: a.update(support_vectors_=a["support_vectors_"][:, :1].copy()),
        lambda state, a: state.update(_sparse=True),
        lambda state, a: state.update(kernel=EXP),
        lambda state, a: state.update(n_features_in_=10**6),
    ],
)
def test_a_support_vector_machine_whose_arrays_do_not_fit_is_refused(change, tmp_path):
    refused(changed(SVC().fit(X, Y), change, tmp_path))


def test_pipelines_with_a_cache_of_pickles_or_a_foreign_function_are_refused(tmp_path):
    pipeline = make_pipeline(FunctionTransformer(np.log1p), StandardScaler()).fit(np.abs(X))
    assert np.array_equal(ke.load(ke.save(pipeline, tmp_path / "m.ke")).transform(abs(X)), pipeline.transform(abs(X)))
    for odd in ({"memory": "cache"}, {"_doc_link_module": "x"}, {"fit": EXP}):
        refused(changed(pipeline, lambda state, arrays, odd=odd: state.update(odd), tmp_path))
    transformer = FunctionTransformer(np.log1p).fit(abs(X))
    refused(changed(transformer, lambda state, arrays: state.update(func=SYSTEM), tmp_path))


ODD_VALUES = {
    "lengthscale NaN": lambda node, arrays: fill(arrays, "raw_lengthscale", np.nan),
    "lengthscale infinite": lambda node, arrays: fill(arrays, "raw_lengthscale", np.inf),
    "no lengthscale": lambda node, arrays: shorten(arrays, 0, "raw_lengthscale"),
    "fewer points than coefficients": lambda node, arrays: shorten(arrays, 3, "x", "points"),
    "fewer coefficients than points": lambda node, arrays: shorten(arrays, 3, "K", "y", "1"),
    "every array of length 1": lambda node, arrays: shorten(arrays, 1),
    "every array NaN": lambda node, arrays: fill(arrays, "", np.nan),
    "class count negative": lambda node, arrays: replace(node, "num_classes", -3),
    "class count text": lambda node, arrays: replace(node, "num_classes", "touch sentinel"),
    "class count huge": lambda node, arrays: replace(node, "num_classes", 10**15),
    "kernel missing": lambda node, arrays: replace(node, "kernel", None),
}


def fill(arrays, part, value):
    arrays.update({name: np.full_like(a, value) for name, a in arrays.items() if part in name and a.dtype.kind == "f"})


def shorten(arrays, length, *ends):
    """Cut every array, or those whose last name is one of ``ends``."""
    names = [name for name, a in arrays.items() if a.ndim and (not ends or name.rpartition(".")[2] in ends)]
    arrays.update({name: arrays[name][:length].copy() for name in names})


def replace(node, key, value):
    """Give every entry ``key`` of a description another value."""
    for name, part in node.items() if isinstance(node, dict) else enumerate(node):
        if name == key:
            node[name] = value
        elif isinstance(part, dict | list):
            replace(part, key, value)


@pytest.mark.parametrize("name", list(ODD_VALUES))
@pytest.mark.parametrize("kind", ["conditioned embedding", "classifier", "vote"])
@pytest.mark.filterwarnings("ignore")
def test_allowed_classes_with_odd_values_run_no_foreign_code(kind, name, tmp_path, tmp_path_factory, monkeypatch):
    """Loading, predicting and printing may fail, but start no program and open no other file for writing."""
    monkeypatch.chdir(tmp_path)
    node, arrays = copy.deepcopy(odd_model(kind, tmp_path_factory.getbasetemp()))
    ODD_VALUES[name](node, arrays)
    path = forge(tmp_path / "odd.ke", node, arrays)
    x = torch.zeros(2, 1, dtype=torch.float64) if kind == "conditioned embedding" else X[:2]
    with recorded_events() as events:
        for call in (lambda model: model.predict(x), repr):
            with contextlib.suppress(Exception):
                call(ke.load(path))
    assert "open" in {event for event, _ in events}
    assert not {event for event, _ in events} & {"os.system", "subprocess.Popen", "os.exec", "os.posix_spawn"}
    written = [values[0] for event, values in events if event == "open" and values[2] & (os.O_WRONLY | os.O_RDWR)]
    assert not [file for file in written if "__pycache__" not in str(file)]
    assert os.listdir() == ["odd.ke"]


RECORDERS: list[list] = []


@functools.cache
def install_audit_hook():
    """One hook for all tests, because Python cannot remove it."""
    sys.addaudithook(lambda event, values: [recorder.append((event, values)) for recorder in RECORDERS])


@contextlib.contextmanager
def recorded_events():
    install_audit_hook()
    RECORDERS.append([])
    try:
        yield RECORDERS[-1]
    finally:
        RECORDERS.pop()


@functools.cache
def odd_model(kind, tmp_path):
    if kind == "conditioned embedding":
        embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), 2).double()
        return node_of(embedding.condition(torch.randn(12, 1, dtype=torch.float64), torch.arange(12) % 2), tmp_path)
    if kind == "vote":
        return node_of(
            ke.VotedKernelClassifier([gpytorch.kernels.RBFKernel()], num_calibration_folds=0).fit(X, Y), tmp_path
        )
    return node_of(
        ke.MulticlassEmbeddingClassifier(gpytorch.kernels.RBFKernel(), max_evaluations=3).fit(X, Y), tmp_path
    )


FLOATS = "{{'descr': '<f8', 'fortran_order': False, 'shape': {}, }}".format
GOOD, A = npy(FLOATS((2,)), bytes(16)), '{"array":"a"}'


def zipped(*members, content=A, kind="model", compression=zipfile.ZIP_STORED):
    """A file with a manifest of this content, and further members."""
    return sealed([("manifest.json", manifest(content, kind)), *members], compression)


MEMBERS = {
    "a member that is compressed": zipped(("a.npy", GOOD), compression=zipfile.ZIP_DEFLATED),
    "a bomb": zipped(content="[" + "0," * 10**6 + "0]", compression=zipfile.ZIP_DEFLATED),
    "an array without a header": zipped(("a.npy", b"")),
    "a pickled array": zipped(("a.npy", pickled())),
    "a header of an unknown version": zipped(("a.npy", npy("", b"", (3, 0)))),
    **{f"a header, {name}": zipped(("a.npy", npy(header, bytes(16)))) for name, header in HEADERS.items()},
    # beside the array: a name twice, an array that nothing uses, a folder, paths, a pickle
    **{name: zipped(("a.npy", GOOD), (name, GOOD)) for name in ("a.npy", "b.npy", "a/b.npy", "data.pkl")},
    **{name: zipped(("a.npy", GOOD), (name, GOOD)) for name in ("../../sentinel.npy", "/tmp/sentinel.npy")},
    "no manifest": sealed([("a.npy", GOOD)]),
    "no members": sealed([]),
    "a manifest that is no text": sealed([("manifest.json", b"\xff\xfe\x00")]),
    "a manifest that is no dictionary": sealed([("manifest.json", b"[1]")]),
    "a manifest without content": sealed([("manifest.json", b'{"format":3,"kind":"model"}')]),
    "a kind that is a list": sealed([("manifest.json", b'{"format":3,"kind":["model"]}')]),
    "a file of another kind": zipped(content="1", kind="checkpoint"),
    "a deep manifest": zipped(content="[" * 10**6 + "]" * 10**6),
    "deep lists": zipped(content='{"list":[' * 300 + "]}" * 300),
    "deep keys": zipped(content='{"set":[' + '{"tuple":[' * 400 + "]}" * 400 + "]}"),
    "many values": zipped(content="[" + "[]," * (3 * 10**6) + "0]"),
    "a long number": zipped(content="1" * 10**6),
    "a number that JSON does not have": zipped(content="NaN"),
}


@pytest.mark.parametrize("name", list(MEMBERS))
def test_a_hostile_container_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hostile.ke").write_bytes(MEMBERS[name])
    refused(tmp_path / "hostile.ke")


def test_members_that_overlap_are_refused(tmp_path):
    """Two entries of the directory that share the bytes of one member promise more than the file holds."""
    payload = npy(FLOATS((10_000,)), bytes(80_000))
    shared = bytearray(zipped(("a.npy", payload), ("b.npy", payload)))
    first, entry = shared.index(b"a.npy") - 30, shared.rindex(b"PK\x01\x02")
    shared[entry + 42 : entry + 46] = first.to_bytes(4, "little")
    (tmp_path / "hostile.ke").write_bytes(seal(bytes(shared)))
    refused(tmp_path / "hostile.ke")


def test_places_that_are_no_files_are_refused(tmp_path):
    refused(tmp_path)
    refused(tmp_path / "none.ke", error=FileNotFoundError)
    (tmp_path / "empty.ke").write_bytes(b"")
    refused(tmp_path / "empty.ke")
    os.mkfifo(tmp_path / "pipe.ke")
    refused(tmp_path / "pipe.ke")
    (tmp_path / "zero.ke").symlink_to("/dev/zero")
    refused(tmp_path / "zero.ke")
    path = ke.save({"a": np.zeros(1000)}, tmp_path / "large.ke")
    assert "max_bytes" in refused(path, lambda path: ke.load(path, max_bytes=1000))


# --- posteriors and checkpoints ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def posterior():
    x, y = torch.randn(12, 1, dtype=torch.float64), torch.arange(12) % 2
    embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), 2).double()
    settings = {"num_samples": 4, "sampler": ke.Laplace(), "seed": 0}
    return embedding, ke.sample_posterior(embedding, ke.ConditionalEvidence(), x, y, **settings)


def load_drawn(embedding):
    return lambda path: ke.load_posterior(path, embedding, ke.ConditionalEvidence())


POSTERIORS = {
    "weights that sum to 2": lambda c: c.update(weights=c["weights"] * 2),
    "a negative weight": lambda c: c["weights"][:2].add_(torch.tensor([1.0, -1.0])),
    "a weight that is NaN": lambda c: c["weights"][:1].fill_(float("nan")),
    "too few weights": lambda c: c.update(weights=torch.ones(1, dtype=torch.float64)),
    "weights that are text": lambda c: c.update(weights="1"),
    "draws of the wrong shape": lambda c: c.update(u=c["u"][0]),
    "draws of too few parameters": lambda c: c.update(u=c["u"][..., :1]),
    "draws that are infinite": lambda c: c["u"][:1].fill_(float("inf")),
    "no draws": lambda c: c.update(u=c["u"][:, :0]),
    "densities of the wrong shape": lambda c: c.update(log_density=c["log_density"][:, :1]),
    "divergences that are numbers": lambda c: c.update(diverging=c["diverging"].double()),
    "fewer labels than rows": lambda c: c.update(y=c["y"][:3]),
    "data that are NaN": lambda c: c["x"][:1].fill_(float("nan")),
    "a negative temperature": lambda c: c["settings"].update(temperature=-1.0),
    "a method that is a list": lambda c: c["settings"].update(method=[]),
    "no settings": lambda c: c.pop("settings"),
    "settings that are a list": lambda c: c.update(settings=[]),
    "no data": lambda c: c.pop("x"),
    "a state of text": lambda c: c["state"].update(dict.fromkeys(c["state"], "a")),
    "the state of something else": lambda c: c["state"].clear(),
}


@pytest.mark.parametrize("name", list(POSTERIORS))
def test_a_hostile_posterior_is_refused(name, tmp_path, posterior):
    embedding, drawn = posterior
    drawn.save(tmp_path / "p.npz")
    content = copy.deepcopy(read_plain(tmp_path / "p.npz", "posterior"))
    POSTERIORS[name](content)
    write_plain(tmp_path / "p.npz", "posterior", content)
    refused(tmp_path / "p.npz", load_drawn(embedding))


FIELDS = {"tuple": [1, 2, 3], "of": name_of(ke.voting.Complexities)}
OF_MODELS = (SOFTPLUS, EXP, FIELDS, {"class": name_of(gpytorch.kernels.RBFKernel)}, {"partial": EXP, "arguments": []})


@pytest.mark.parametrize("node", [*NODES, *OF_MODELS], ids=lambda node: f"{node!s:.60}")
def test_posteriors_and_checkpoints_hold_no_objects_not_even_those_of_models(node, tmp_path, posterior):
    refused(forge(tmp_path / "p", {"dict": {"u": node}}, kind="posterior"), load_drawn(posterior[0]))
    refused(forge(tmp_path / "c", {"dict": {"best": node}}, kind="checkpoint"), load_checkpoint)


@pytest.mark.parametrize("node", [{"list": []}, 1, None])
def test_a_checkpoint_is_a_dictionary(node, tmp_path):
    refused(forge(tmp_path / "c", node, kind="checkpoint"), load_checkpoint)


def test_a_checkpoint_without_its_content_is_refused(tmp_path):
    x, y = torch.randn(12, 1, dtype=torch.float64), torch.arange(12) % 2
    embedding, path = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), 2), tmp_path / "c"

    def learn(path):
        ke.fit(embedding.double(), ke.EmpiricalRisk(), x, y, checkpoint=path, max_evaluations=2, progress=False)

    learn(path)
    content = load_checkpoint(path)
    del content["best"]
    write_plain(path, "checkpoint", content)
    refused(path, learn)


def written(kind, tmp_path, posterior):
    """A file of each kind, and its reader."""
    path = tmp_path / "file"
    if kind == "model":
        return ke.save(ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), 2), path), ke.load
    if kind == "posterior":
        posterior[1].save(path)
        return path, load_drawn(posterior[0])
    write_plain(path, "checkpoint", {"best": torch.arange(9.0), "history": [{"value": 0.5}] * 20})
    return path, load_checkpoint


@pytest.mark.parametrize("kind", ["model", "posterior", "checkpoint"])
def test_a_flipped_bit_anywhere_and_bytes_that_were_lost_or_came_are_found(kind, tmp_path, posterior):
    path, load = written(kind, tmp_path, posterior)
    whole = path.read_bytes()
    cuts = (0, 1, 29, 30, 43, 100, len(whole) // 2, len(whole) - 65, len(whole) - 1)
    damaged = [*(whole[:end] for end in cuts), whole + b"\0", b"\0" + whole, whole * 2]
    ends = [*range(120), *range(8 * len(whole) - 700, 8 * len(whole), 7)]
    for bit in [*ends, *np.random.RandomState(0).randint(0, 8 * len(whole), 200)]:
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << (bit % 8)
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=str(path)):
            load(path)
