"""Bad input gives a clear error or a correct result; never NaN, never a hang."""

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, MultitaskKernel, RBFKernel, RQKernel, ScaleKernel
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning

import kernel_embed as ke
from kernel_embed import plots
from kernel_embed.embeddings import clip_normalize
from kernel_embed.kernels.lengthscales import scan_span
from kernel_embed.lab.compare import Categories
from kernel_embed.plots.embeddings import line
from kernel_embed.scale import ConjugateGradients
from kernel_embed.tabular import TableEncoder
from kernel_embed.testing import KernelContract

from .conftest import rbf
from .objectives import OBJECTIVES
from .testing import suite

FAST = {"max_evaluations": 10}
NAN, INF = float("nan"), float("inf")
BAD = (NAN, INF, -INF)


@pytest.fixture
def embedding():
    return ke.MulticlassEmbedding(rbf(), 3)


class Indefinite(Kernel):
    """k(x, x') = c ‖x − x'‖ + offset: symmetric, not positive definite."""

    def __init__(self, scale, offset):
        super().__init__()
        self.scale, self.offset = scale, offset

    def forward(self, x1, x2, diag=False, **params):
        if diag:
            return torch.full_like(x1[..., 0], self.offset)
        return self.scale * torch.cdist(x1, x2) + self.offset


def with_bad(x, bad):
    x = x.clone()
    x[3, 1] = bad
    return x


FLOATS = "Expected x in float32 or float64, got torch.{}. Convert it with x.float"
CLASS_NUMBERS = r"class numbers from 0 to 2 \(num_classes=3\), got {} to {}. Number the classes from 0"
BAD_DATA = [
    *((lambda x, y, b=b: (with_bad(x, b), y), r"finite values in x, got 1 NaN or.*\(3, 1\).*Remove") for b in BAD),
    (lambda x, y: (x[:0], y[:0]), r"Expected at least one row and one column in x, got shape \(0, 3\)"),
    (lambda x, y: (x[:5, :0], y[:5]), r"Expected at least one row and one column in x, got shape \(5, 0\)"),
    (lambda x, y: (x, y[:23]), r"Expected one target for each of the 24 rows of x, got 23"),
    (lambda x, y: (x, torch.cat([y, y[:1]])), r"Expected one target for each of the 24 rows of x, got 25"),
    (lambda x, y: (x.half(), y), FLOATS.format("float16")),
    (lambda x, y: (x.bfloat16(), y), FLOATS.format("bfloat16")),
    (lambda x, y: (x.to(torch.complex64), y), FLOATS.format("complex64")),
    (lambda x, y: (x, y - 1), CLASS_NUMBERS.format(-1, 1)),
    (lambda x, y: (x, y + 1), CLASS_NUMBERS.format(1, 3)),
]
WRONG_WIDTH = r"(?s)Expected.*5.*ard_num_dims.*3"
BAD_KERNELS = [
    (RBFKernel(ard_num_dims=5), WRONG_WIDTH),
    (ScaleKernel(MaternKernel(ard_num_dims=5)), WRONG_WIDTH),
    (ScaleKernel(RQKernel(ard_num_dims=5)), WRONG_WIDTH),
    (RQKernel(ard_num_dims=5), WRONG_WIDTH),
    (LinearKernel(ard_num_dims=5) + RBFKernel(), WRONG_WIDTH),
    (LinearKernel() * RBFKernel(ard_num_dims=5), WRONG_WIDTH),
    (Indefinite(1.0, 0.0), r"Expected a positive definite.*Is the kernel positive definite\?.*raise"),
    (Indefinite(NAN, 1.0), r"Expected finite kernel values, got NaN or infinite"),
]
UNUSABLE = [(rbf(), *case) for case in BAD_DATA] + [(k, lambda x, y: (x, y), message) for k, message in BAD_KERNELS]


@pytest.mark.parametrize(("kernel", "change", "message"), UNUSABLE, ids=range(len(UNUSABLE)))
def test_training_data_and_kernels_that_are_rejected_by_every_function(kernel, change, message, problem):
    (x, y), embedding, risk = change(problem.x, problem.y), ke.MulticlassEmbedding(kernel, 3), ke.EmpiricalRisk()
    for call in (
        embedding.condition,
        lambda *data: risk(embedding, *data),
        lambda *data: ke.fit(embedding, risk, *data),
    ):
        with pytest.raises((TypeError, ValueError, RuntimeError, NotPSDError, NanError), match=message):
            call(x, y)


@pytest.mark.parametrize("bad", BAD)
def test_queries_and_cells_that_are_not_finite(bad, embedding, problem):
    x, conditioned = with_bad(problem.x, bad), embedding.condition(problem.x, problem.y)
    for method in (conditioned.decision_probabilities, conditioned.predict, conditioned.entropy, conditioned.weights):
        with pytest.raises(ValueError, match=r"Expected finite values in x"):
            method(x)
        for width in (1, 2, 4):
            with pytest.raises(ValueError, match=rf"Expected x with 3 features, as in training, got {width}"):
                method(torch.zeros(5, width, dtype=torch.float64))
    if bad != bad:  # a missing cell, which the classifier takes
        assert np.isfinite(ke.MulticlassEmbeddingClassifier(**FAST).fit(x.numpy(), problem.y).predict_proba(x)).all()
        return
    with pytest.raises(ValueError, match=r"(?i)infinity"):
        ke.MulticlassEmbeddingClassifier().fit(x.numpy(), problem.y.numpy())


def test_huge_and_tiny_values(problem):
    y = problem.y.numpy()
    plain = ke.MulticlassEmbeddingClassifier(**FAST).fit(problem.x.numpy(), y).predict_proba(problem.query.numpy())
    for factor in (1e150, 1e-150):
        x = problem.x.numpy() * factor
        scaled = ke.MulticlassEmbeddingClassifier(**FAST).fit(x, y).predict_proba(problem.query.numpy() * factor)
        np.testing.assert_allclose(scaled, plain, atol=1e-5)


@pytest.mark.parametrize(
    "kernel",
    [RBFKernel(), LinearKernel(), RQKernel(), RBFKernel(batch_shape=torch.Size([2]))],
    ids=["closed form", "features", "by GPyTorch", "batch"],
)
def test_an_empty_query_has_empty_predictions(kernel, problem):
    kernel, none, b = kernel.double(), problem.x[:0], tuple(kernel.batch_shape)
    conditioned = ke.MulticlassEmbedding(kernel, 3).condition(problem.x, problem.y)
    assert conditioned.predict(none).shape == (*b, 0)
    assert conditioned.predict(none).dtype == torch.long
    assert conditioned.probabilities(none).shape == conditioned.mean(none).shape == (*b, 0, 3)
    assert conditioned.entropy(none).shape == (*b, 0)
    assert conditioned.weights(none).shape == (*b, 24, 0)
    assert ke.MeanEmbedding(kernel).condition(problem.x)(none).shape == (*b, 0)
    if not isinstance(kernel, LinearKernel):
        bayesian = ke.BayesianMeanEmbedding(kernel).condition(problem.x)
        assert bayesian.mean(none).shape == bayesian(none).mean.shape == (*b, 0)
    with pytest.raises(ValueError, match=r"Expected x with 3 features, as in training, got 2"):
        conditioned.predict(none[:, :2])
    for method in (ke.RandomFeatures(50), ke.Nystrom(5), ke.scale.ConjugateGradients(5)):
        predictor, _ = ke.approximate(classes(rbf()), problem.x, problem.y, method=method, probe_size=10)
        assert predictor.mean(none).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integer_features_become_numbers(dtype):
    x = torch.tensor([[0], [1], [1], [0], [0], [1]]).to(dtype)
    y = torch.tensor([0, 1, 1, 0, 0, 1])
    embedding = ke.MulticlassEmbedding(RBFKernel(), 2)
    conditioned = embedding.condition(x, y)
    assert conditioned.P.dtype == torch.get_default_dtype()
    assert conditioned.predict(x).tolist() == y.tolist()
    ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, max_evaluations=5)
    assert embedding.condition(x, y).predict(x).tolist() == y.tolist()
    classifier = ke.MulticlassEmbeddingClassifier(**FAST).fit(x.numpy(), y.numpy())
    assert classifier.predict(x.numpy()).tolist() == y.tolist()


def test_integer_queries_keep_their_digits():
    """float32 holds whole numbers up to 2²⁴ only; the data are float64, so are the queries."""
    base = 2**24
    x = torch.tensor([[base + 1.0], [base + 3.0], [base + 5.0]], dtype=torch.float64)
    conditioned = ke.MulticlassEmbedding(rbf(1, 0.3), 3).condition(x, torch.tensor([0, 1, 2]))
    torch.testing.assert_close(conditioned.decision_probabilities(x.long()), conditioned.decision_probabilities(x))


@pytest.mark.parametrize("x", [torch.randn(12, 2), torch.randint(0, 9, (12, 2))], ids=["single", "integer"])
@pytest.mark.parametrize(
    "make", [ke.MeanEmbedding, ke.BayesianMeanEmbedding, ke.embeddings.ShrinkageMeanEmbedding], ids=str
)
def test_samples_of_a_narrower_dtype_become_the_kernels(make, x):
    embedding = make(rbf(2))
    answers = [embedding.condition(sample)(query) for sample, query in ((x, x[:5]), (x.double(), x[:5].double()))]
    values = [answer if isinstance(answer, torch.Tensor) else answer.mean for answer in answers]
    torch.testing.assert_close(*values, rtol=0, atol=0)
    assert values[0].dtype == torch.float64


NO_TENSOR = "to be a torch.Tensor, got (ndarray|list|NoneType). Conv"
ZEROS = torch.zeros(4, 2, dtype=torch.float64)
BAD_POINTS = [
    *((with_bad(ZEROS, bad), r"finite values in x[12]?, got 1 NaN.*\(3, 1\). Remove") for bad in BAD),
    (ZEROS.half(), r"Expected x[12]? in float32 or float64, got torch.float16. Convert it"),
    (torch.tensor(1.0).double(), r"Expected x[12]? of shape \(n, d\), got a single number"),
    *((x, f"Expected x1? {NO_TENSOR}") for x in (ZEROS.numpy(), [[0.0, 1.0]], None)),
]


@pytest.mark.parametrize(("x", "message"), BAD_POINTS, ids=range(len(BAD_POINTS)))
def test_points_that_are_rejected_by_every_function(x, message):
    functions = [
        *(ke.default_kernel, ke.kernels.median_distance, lambda x: ke.set_lengthscales_by_median(RBFKernel(), x)),
        *(ke.MeanEmbedding(rbf(2)).condition, ke.BayesianMeanEmbedding(rbf(2)).condition, lambda x: ke.gram(rbf(2), x)),
        *([lambda x: ke.gram(rbf(2), ZEROS, x)] if x is not None else []),
    ]
    for function in functions:
        with pytest.raises((TypeError, ValueError), match=message.replace("x1?", "x[12]?")):
            function(x)


def test_points_of_wrong_shape_and_kernels_that_are_none():
    with pytest.raises(TypeError, match=f"Expected x {NO_TENSOR}"):
        ke.kernels.gram_diagonal(rbf(2), None)
    for call in (lambda: ke.gram(1.0, torch.ones(2, 2)), lambda: ke.set_lengthscales_by_median("rbf", torch.ones(2))):
        with pytest.raises(TypeError, match=r"Expected a gpytorch.kernels.Kernel, got (float|str)"):
            call()
    with pytest.raises(ValueError, match=r"Expected x1 and x2 of one width, got 2 and 3 columns"):
        ke.gram(RBFKernel(), torch.zeros(3, 2), torch.zeros(3, 3))
    x = torch.linspace(0, 1, 5, dtype=torch.float64)
    torch.testing.assert_close(ke.gram(rbf(1), x), ke.gram(rbf(1), x[:, None]))
    torch.testing.assert_close(ke.kernels.gram_diagonal(rbf(1), x), torch.ones_like(x))
    with pytest.raises(ValueError, match=r"Expected 2 features"):
        ke.MeanEmbedding(rbf(2)).condition(x)
    with pytest.raises(ValueError, match=r"needs x with at least 4 features"):
        ke.set_lengthscales_by_median(RBFKernel(active_dims=[3]), torch.zeros(4, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scales_from_points_whose_squares_overflow(dtype):
    x = torch.randn(10, 3, dtype=dtype)
    huge = 2.0 ** (100 if dtype == torch.float32 else 1000)
    median, ranges = ke.kernels.median_distance(x), ke.kernels.feature_ranges(x)
    for factor in (huge, 1.0 / huge):
        assert ke.kernels.median_distance(x * factor).item() == median.item() * factor
        torch.testing.assert_close(ke.kernels.feature_ranges(x * factor), ranges * factor)
    ends = torch.tensor([[-1.0], [1.0]], dtype=dtype) * torch.finfo(dtype).max
    with pytest.raises(ValueError, match=r"Expected features whose ranges torch.float\d\d can hold.*Rescale"):
        ke.default_kernel(ends)
    for lengthscale in (0.0, NAN, INF):
        with pytest.raises(ValueError, match=r"Expected a positive, finite lengthscale"):
            ke.default_kernel(x, lengthscale)


def test_more_rows_than_memory_holds():
    """Refused before anything of n × n is formed; the points themselves are one number, repeated."""
    x = torch.zeros(1, 1).expand(1_000_000, 1)
    y = torch.zeros(1_000_000, dtype=torch.long)
    for method, remedy in (
        (lambda: ke.gram(RBFKernel(), x), "some rows at a time"),
        (lambda: ke.MulticlassEmbedding(RBFKernel(), 2).condition(x, y), r"approximate.*Nystrom.*batch_size=500"),
        (lambda: ke.ConditionalEmbedding(RBFKernel()).attach(x, y), "approximate"),
        (lambda: ke.fit(ke.MulticlassEmbedding(RBFKernel(), 2), ke.EmpiricalRisk(), x, y), "approximate"),
        (lambda: ke.embeddings.ShrinkageMeanEmbedding(RBFKernel()).condition(x), "part of the rows"),
    ):
        with pytest.raises(MemoryError, match=rf"got n = 1000000, whose 1000000 × 1000000 .* GiB of the.*{remedy}"):
            method()
    features = ke.ConditionalEmbedding(LinearKernel()).condition(x, y)  # whose matrices are 1 × 1
    assert features.mean(x[:2]).shape == (2, 1)


def conditioned_on(name, m, x, y):
    """Conditioned on data for which the objective and its gradient are finite."""
    embedding = ke.MulticlassEmbedding(rbf(), m)
    value = OBJECTIVES[name]()(embedding, x, y)
    value.backward()
    assert torch.isfinite(value)
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in embedding.parameters())
    return embedding.condition(x, y)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("m", [1, 2])
def test_one_class_only(name, m, problem):
    conditioned = conditioned_on(name, m, problem.x, torch.zeros(24, dtype=torch.long))
    assert conditioned.predict(problem.x).tolist() == [0] * 24
    torch.testing.assert_close(conditioned.probabilities(problem.x)[:, 0], torch.ones(24, dtype=torch.float64))


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if "Validation" not in name])
def test_one_row(name):
    x = torch.ones(1, 3, dtype=torch.float64)
    conditioned = conditioned_on(name, 2, x, torch.tensor([1]))
    assert conditioned.predict(x).tolist() == [1]
    # a model without data knows nothing: f = 0
    assert conditioned.leave_one_out().abs().max().item() == pytest.approx(0.0, abs=1e-12)


def test_one_class_and_one_row_in_the_classifier(problem):
    classifier = ke.MulticlassEmbeddingClassifier(**FAST).fit(problem.x.numpy(), ["only"] * 24)
    assert set(classifier.predict(problem.query.numpy())) == {"only"}
    np.testing.assert_allclose(classifier.predict_proba(problem.query.numpy()), np.ones((7, 1)))
    assert np.isfinite(classifier.bound_.value)
    one_row = ke.MulticlassEmbeddingClassifier(**FAST).fit([[1.0, 2.0]], ["a"])
    assert one_row.predict([[1.0, 2.0], [5.0, 5.0]]).tolist() == ["a", "a"]
    assert np.isfinite(one_row.predict_proba([[1.0, 2.0]])).all()


def test_two_rows_are_never_predicted_the_wrong_way_round():
    """Left-out predictions of two rows are always wrong; that is no reason to believe the opposite."""
    classifier = ke.MulticlassEmbeddingClassifier().fit([[0.0], [1.0]], ["a", "b"])
    p = classifier.predict_proba([[0.0], [1.0]])
    assert p[0, 0] >= 0.5 - 1e-9
    assert p[1, 1] >= 0.5 - 1e-9


def test_constant_columns_and_labels_not_seen_in_training(problem):
    """Such labels can be scored: every prediction of them is wrong, and no error."""
    x, y = problem.x.numpy(), problem.y.numpy()
    wide = np.column_stack([x, np.full(24, 7.0), np.zeros(24)])
    query = np.column_stack([problem.query.numpy(), np.full(7, 7.0), np.zeros(7)])
    classifier = ke.MulticlassEmbeddingClassifier(**FAST).fit(wide, y)
    assert np.isfinite(classifier.predict_proba(query)).all()
    assert classifier.score(wide, y) > 0.6
    assert classifier.score(query, np.full(7, 9)) == 0.0
    x, y = np.ones((41, 2)), np.array([0] * 10 + [1] * 31)
    classifier = ke.MulticlassEmbeddingClassifier(**FAST).fit(x, y)
    assert classifier.predict_proba(x[:1])[0, 1] == pytest.approx(0.75, abs=0.05)
    assert classifier.predict(x[:1]).tolist() == [1]


@pytest.mark.filterwarnings("ignore:The fit is degenerate")  # the two values are 15 lengthscales apart
@pytest.mark.parametrize("kernel", [RBFKernel, lambda: MaternKernel(0.5), lambda: MaternKernel(1.5)])
def test_duplicated_rows_with_different_labels(kernel):
    """Four equal rows, three of one class: with little regularization the embedding says 3/4 there."""
    x = torch.tensor([[0.0]] * 4 + [[10.0]] * 4, dtype=torch.float64)
    y = torch.tensor([0, 0, 0, 1, 1, 1, 1, 0])
    embedding = ke.MulticlassEmbedding(kernel().double(), 2, 1e-6)
    p = embedding.condition(x, y).probabilities(torch.tensor([[0.0], [10.0]], dtype=torch.float64)).detach()
    np.testing.assert_allclose(p, [[0.75, 0.25], [0.25, 0.75]], atol=1e-4)
    result = ke.fit(embedding, ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"), x, y, max_evaluations=20)
    assert np.isfinite(result.value)


def test_duplicated_rows_with_different_labels_in_the_classifier():
    x = np.repeat([[0.0], [10.0]], 12, axis=0)
    y = np.array([0] * 10 + [1] * 2 + [1] * 10 + [0] * 2)
    classifier = ke.MulticlassEmbeddingClassifier(**FAST).fit(x, y)
    assert classifier.predict([[0.0], [10.0]]).tolist() == [0, 1]
    np.testing.assert_allclose(classifier.predict_proba([[0.0]])[0], [10 / 12, 2 / 12], atol=0.06)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nearly_singular_matrices_at_tiny_regularization(dtype):
    x = torch.linspace(0, 1, 60, dtype=dtype)[:, None]
    y = (x[:, 0] > 0.5).long()
    embedding = ke.MulticlassEmbedding(RBFKernel().to(dtype), 2, 1e-30)
    embedding.kernel.lengthscale = 10.0
    with pytest.warns(NumericalWarning, match=r"added jitter .* to its diagonal. A larger regularization avoids this"):
        conditioned = embedding.condition(x, y)
    assert torch.isfinite(conditioned.probabilities(x)).all()
    assert (conditioned.predict(x) == y).double().mean() > 0.8


def test_a_learner_that_draws_from_the_global_generator_leaves_it_as_it_was():
    from kernel_embed.lab.runner import fit_model

    class Draws:
        def fit(self, x, y):
            self.drawn = np.random.rand()  # noqa: NPY002 — what such learners do
            return self

    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert 0.0 <= fit_model(Draws(), None, None).drawn <= 1.0
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def with_nan(x):
    """The first column with one NaN."""
    return torch.where(torch.arange(len(x)) == 2, NAN, x[:, 0])


def classifier(p, **options):
    return ke.MulticlassEmbeddingClassifier(**(FAST | options)).fit(p.x.numpy(), p.y.numpy())


def regressor(p):
    return ke.ConditionalEmbeddingRegressor(max_evaluations=2, progress=False).fit(p.x.numpy(), p.x.sum(1).numpy())


def votes(p, folds):
    return ke.VotedKernelClassifier(num_calibration_folds=folds).fit(p.x.numpy(), p.y.numpy())


def classes(kernel, *regularization):
    return ke.MulticlassEmbedding(kernel, 3, *regularization)


ROWS, HALVES = np.arange(20.0).reshape(-1, 1), lambda x: np.full((len(x), 2), 0.5)
NESTED = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
FAR = torch.tensor([[1e200], [3e200], [-2e200]], dtype=torch.float64)
F, ONE_HOT = torch.full((6, 2), 0.4, dtype=torch.float64), torch.eye(2, dtype=torch.float64).repeat(3, 1)
WRONG_LABELS = ONE_HOT[:5], ONE_HOT[:, :1], ONE_HOT.argmax(-1)
BATCHED, MULTITASK = RBFKernel(batch_shape=torch.Size([2])), MultitaskKernel(RBFKernel(), num_tasks=2).double()
MEAN, STIFF = ke.BayesianMeanEmbedding(RBFKernel()), ke.ConditionalEmbedding(rbf(), 1e300, target_kernel=rbf())
calibrate, RISK = ke.objectives.calibrate, ke.EmpiricalRisk()
REJECTED = [
    # targets
    (lambda e, p: ke.ConditionalEmbedding(rbf()).condition(p.x, with_nan(p.x)), r"finite values in y, got 1 .*\(2,\)"),
    (lambda e, p: e.condition(p.x, with_nan(p.x)), r"Expected class numbers in y"),
    (lambda e, p: e.condition(p.x, torch.tensor(1)), r"one target for each of the 24 rows of x, got a single number"),
    (lambda e, p: e.condition(p.x, torch.zeros(24, 4)), r"a vector of class numbers, or 3 probabilities .* \(24, 4\)"),
    (lambda e, p: e.condition(p.x, p.y + 0.5), r"class numbers in y, got values that are not whole.*ConditionalEmb"),
    (lambda e, p: e.condition(p.x, p.y.to(torch.complex64)), r"Expected class numbers in y, got torch.complex64"),
    (lambda e, p: e.condition(p.x, p.y.tolist()), r"Expected y to be a torch.Tensor, got list. Convert it"),
    (lambda e, p: ke.fit(e, ke.EmpiricalRisk(), p.x), r"y"),
    (lambda e, p: ke.EmpiricalRisk()(e, p.x), r"y"),
    (lambda e, p: ke.MulticlassEmbeddingClassifier().fit(p.x.numpy(), p.x[:, 0].numpy()), r"label type|continuous"),
    (lambda e, p: ke.ConditionalEmbeddingRegressor().fit(ROWS, ROWS[:, 0] + 1j), r"^Expected .*got complex128"),
    (lambda e, p: ke.ConditionalEmbeddingRegressor().fit(ROWS, np.where(ROWS[:, 0] > 3, NAN, 1)), r"index 4: Input y"),
    (lambda e, p: ke.ConditionalEmbeddingRegressor().fit(np.eye(3), None), r"numbers y, got None.*requires y to be"),
    # inputs
    (lambda e, p: e.condition(torch.tensor(1.0), torch.tensor([0])), r"of shape \(n, d\), got a single number"),
    (lambda e, p: e.condition(p.x.expand(2, 24, 3), p.y), r"Expected x of shape \(n, d\), got.*\(2, 24, 3\)"),
    (lambda e, p: e.condition(p.x.numpy(), p.y), r"x to be a torch.Tensor, got ndarray. Convert it with torch.as_t"),
    (lambda e, p: e.condition(p.x.tolist(), p.y), r"Expected x to be a torch.Tensor, got list"),
    (lambda e, p: ke.VotedKernelClassifier([max]).fit(None, [0, 1]), r"X must be a list or an array of points, not N"),
    (lambda e, p: ke.compare(NESTED, [0, 1], methods=["logistic"]), r"X is neither a data frame nor a matrix"),
    (lambda e, p: ke.compare(torch.eye(3).to_sparse(), "y", methods=["logistic"]), r"neither a data frame nor a matr"),
    (lambda e, p: ke.scale.FourierFeatures(torch.ones(2, 3))(torch.tensor([[NAN, 0]])), r"finite values in x, got 1"),
    (lambda e, p: ke.scale.FourierFeatures(torch.ones(1, 2).double())(FAR * 1e107 * 9), r"Expected finite values in"),
    # kernels
    (lambda e, p: classes(RBFKernel(active_dims=[1, 4])).condition(p.x, p.y), r"active_dims.*got 3"),
    (lambda e, p: classes(ScaleKernel(RQKernel(active_dims=[4]))).condition(p.x, p.y), r"got 3"),
    # enough regularization hides that k is not positive definite; its diagonal does not
    (lambda e, p: ke.RademacherComplexity()(classes(Indefinite(0, -1.0), 10.0), p.x, p.y), r"(not|a) positive defini"),
    (lambda e, p: classes(MULTITASK).condition(p.x, p.y), r"one value for each pair of points, but .*\(48, 48"),
    (lambda e, p: ke.posteriors.choose_power(classes(BATCHED), ke.LeaveOneOutRisk(), p.x, p.y), r"batch shape"),
    # settings
    (lambda e, p: classifier(p, kernel="rbf"), r"Expected a gpytorch.kernels.Kernel, got str"),
    (lambda e, p: classifier(p, regularization=-1.0), r"Expected a positive, finite regularization, got -1"),
    (lambda e, p: classifier(p, confidence=95), r"confidence between 0 and 1, got 95"),
    (lambda e, p: classifier(p, batch_size=100), r"batch_size must be from 2 to 24, the number of rows of x, not 100"),
    (lambda e, p: classifier(p, kernel=RBFKernel(ard_num_dims=5)), r"Expected 5 features.*got x with 3"),
    (lambda e, p: classifier(p, objective="loo"), r"The objective must be one such as .*, not str"),
    (lambda e, p: classifier(p, kernel=BATCHED), r"Expected.*batch shape.*got"),
    (lambda e, p: ke.learning.TorchOptimizer(None), r"must make a torch.optim.Optimizer .*, but None cannot be called"),
    (lambda e, p: ke.LBFGS(num_restarts=1.5), r"Expected num_restarts as a whole number, got 1\.5"),
    (lambda e, p: ke.Adam(num_epochs=1.5), r"Expected num_epochs as a whole number, got 1\.5"),
    (lambda e, p: ke.approximate(e, p.x, p.y, method=ke.Nystrom(0.0)), r"num_points as a whole number, got 0\.0"),
    (lambda e, p: e.condition(p.x, p.y).expectation(None, p.x), r"a function of class numbers or its values, got None"),
    (lambda e, p: ke.voting.penalties(0, 0.1, "11"), r"Expected r as numbers, got str"),
    (lambda e, p: plots.plot_null(torch.randn(20), None), r"Expected statistic as a number, got None"),
    (lambda e, p: plots.plot_evidence_curve(np.ones(3), np.ones(3), median="1"), r"median as a number, got '1'"),
    (lambda e, p: plots.plot_probability_map(HALVES, np.zeros((1, 2)), [0, 1], 2), r"of 1 points .* there are 2"),
    (lambda e, p: ke.objectives.EmpiricalScore()(STIFF, p.x, p.x[:, :1]), r"a ridge whose square is a number, got nλ"),
    (lambda e, p: ke.sample_posterior(MEAN, ke.EmbeddingEvidence(), FAR, sampler=ke.Laplace()), r"under the prior"),
    *((lambda e, p, k=k: votes(p, k), "num_calibration_folds as a whole nu") for k in (NAN, INF, 0.1, "three", None)),
    # first mistakes
    (lambda e, p: ke.register(Indefinite, supremum=2.0), "supremum= of Indefinite must be a function"),
    (lambda e, p: ke.fit(e, RISK, p.x, np.array([*"abab"] * 6)), "MulticlassEmbeddingClassifier, which takes any lab"),
    (lambda e, p: ke.fit(e, RISK, p.x, p.y.numpy()), r"Convert it with torch.as_tensor\(y\)"),
    (lambda e, p: ke.fit(RISK, e, p.x, p.y), r"Write fit\(embedding, objective"),
    (lambda e, p: e(p.x), r"not a function of x\. .*embedding\.condition\(x, y\)\.probabilities"),
    (lambda e, p: plots.plot_relevance(regressor(p)), "permutation_importance"),
    (lambda e, p: plots.plot_importances(regressor(p)), "permutation_importance"),
    (
        lambda e, p: suite(KernelContract, make_kernel=lambda: RBFKernel).test_gram_is_the_kernel_itself(),
        "the class RBF",
    ),
    # calibration
    (lambda e, p: calibrate(F * NAN, ONE_HOT), r"Expected finite values in F"),
    (lambda e, p: calibrate(F, ONE_HOT * INF), r"Expected finite values in Y"),
    (lambda e, p: calibrate(F.numpy(), ONE_HOT), r"Expected F to be a torch.Tensor, got ndarray"),
    (lambda e, p: calibrate(F, ONE_HOT.tolist()), r"Expected Y to be a torch.Tensor, got list"),
    *[(lambda e, p, bad=bad: calibrate(bad, ONE_HOT), r"Expected F as dec") for bad in (F[:, 0], F[:0], F.long())],
    *[(lambda e, p, bad=bad: calibrate(F, bad), r"one-hot labels of shape \(6, 2\), as F") for bad in WRONG_LABELS],
    *[(lambda e, p, bad=bad: calibrate(F, ONE_HOT, bad), r"a positive, finite penalty") for bad in (0.0, NAN)],
]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("call", "message"), REJECTED, ids=[str(i) for i in range(len(REJECTED))])
def test_bad_arguments_are_rejected(call, message, embedding, problem):
    with pytest.raises((TypeError, ValueError, NanError, NotPSDError), match=message):
        call(embedding, problem)


def test_a_table_that_catboost_rejects():
    pytest.importorskip("catboost")
    from kernel_embed.lab.compare import ReferenceClassifier

    with pytest.raises(ValueError, match="CatBoost rejects this table"):
        ReferenceClassifier("catboost").fit(np.ones((6, 1)), [0, 1] * 3)


def test_equivalent_arguments_give_the_same_result(embedding, problem):
    """A column of labels or inputs, whole decimals, integer one-hot labels and temperatures, weights of any dtype."""
    row, labels = torch.linspace(0, 1, 8, dtype=torch.float64), torch.arange(8) // 4
    one, other = (ke.MulticlassEmbedding(rbf(1), 2).condition(x, labels).P for x in (row, row[:, None]))
    torch.testing.assert_close(one, other)
    P = embedding.condition(problem.x, problem.y).P
    torch.testing.assert_close(embedding.condition(problem.x, problem.y[:, None]).P, P)
    torch.testing.assert_close(embedding.condition(problem.x, problem.y.double()).P, P)
    torch.testing.assert_close(calibrate(F, ONE_HOT.long()).offset, calibrate(F, ONE_HOT).offset)
    losses, bound = torch.rand(3, 20, dtype=torch.float64), ke.objectives.pac_bayes_bound
    assert bound(losses, temperature=2**70).value == bound(losses, temperature=2.0**70).value
    x, weights = torch.rand(4, 2), torch.full((4,), 0.25, dtype=torch.float64)
    assert ke.embeddings.WeightedEmbedding(RBFKernel(), x, weights)(x).dtype == torch.float32
    assert scan_span(FAR) == pytest.approx((0.5e200, 1e201))
    grid = line(FAR[:2])  # of a picture, beyond single precision
    assert torch.isfinite(grid).all()
    assert float(grid.max()) > 3e200


def test_shares_of_numbers_whose_sum_overflows():
    rows = [[1e308, 1e308, 0.1], [1e308, -1e308, 1e308], [0.3, 0.1, 0.0], [-1.0, -1.0, -1e308]]
    q = clip_normalize(torch.tensor(rows, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(q, [[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.75, 0.25, 0.0], [1 / 3] * 3], atol=1e-12)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int32])
def test_whole_numbers_of_numpy_are_seeds_and_counts(kind, embedding, problem, tmp_path):
    for method in (ke.Nystrom, ke.RandomFeatures):
        errors = [
            ke.approximate(embedding, problem.x, problem.y, method=method(number(8), seed=number(3)))[1]
            for number in (int, kind)
        ]
        assert errors[0] == errors[1]
    conjugate = ConjugateGradients(num_points=kind(8), seed=kind(3))
    assert ke.approximate(embedding, problem.x, problem.y, method=conjugate)[1].num_rows == len(problem.x)
    settings = {"methods": ["logistic"], "folds": kind(2), "seed": kind(3), "budget": np.float32(20), "out": tmp_path}
    assert ke.compare(problem.x.numpy(), problem.y.numpy(), progress=False, **settings).settings.seed == 3


def test_a_grid_may_be_an_array(problem):
    witness = ke.two_sample_test(problem.x[:, :1], problem.x[:, 1:2] + 1, kernel="median", num_permutations=19, seed=0)
    grid = np.linspace(-1, 1, 7)[:, None]
    one, other = (
        plots.plot_witness(witness.witness(), points, ax=plots.free_figure(4, 3).subplots()).lines[0].get_ydata()
        for points in (grid, torch.as_tensor(grid))
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("form", [TableEncoder(), Categories()], ids=["numbers", "categories"])
def test_dates_come_as_text_from_a_file(form):
    table = pd.DataFrame({"day": pd.date_range("2026-01-01", periods=6), "size": np.arange(6.0)})
    as_read = table.assign(day=table.day.astype(str))
    form.fit(table)
    np.testing.assert_array_equal(np.asarray(form.transform(as_read)), np.asarray(form.transform(table)))
    with pytest.raises(ValueError, match="Column 'day' held dates"):
        form.transform(table.assign(day=list("abcdef")))
