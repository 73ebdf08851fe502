"""Bad input: a clear error or a correct result, never a p-value of 0 or NaN."""

from functools import partial

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, RBFKernel
from linear_operator.utils.errors import NanError
from torch import Tensor

import kernel_embed as ke
from kernel_embed import hypothesis

from .data import normal

X, Y = normal(0, 20, 2), normal(1, 20, 2)
CODES = torch.randint(0, 3, (20, 1), generator=torch.Generator().manual_seed(0))
PAIRED = [ke.independence_test, lambda x, y, *a, **k: ke.conditional_independence_test(x, y, X[: len(x)], *a, **k)]
TESTS = [ke.two_sample_test, *PAIRED]


class NanKernel(Kernel):
    """A kernel that returns NaN."""

    def forward(self, x1, x2, diag=False, **params):
        shape = x1.shape[:-1] if diag else (*x1.shape[:-1], x2.shape[-2])
        return torch.full(shape, float("nan"), dtype=x1.dtype)


two, pairs, conditional = ke.two_sample_test, ke.independence_test, ke.conditional_independence_test
REFUSED = [
    (ValueError, r"different numbers of columns: 2 in x, 1 in y\.", lambda: two(X, Y[:, :1])),
    (ValueError, r"3 in sample 3", lambda: ke.k_sample_test(X, Y, torch.zeros(5, 3))),
    (ValueError, "of columns", lambda: hypothesis.LinearTimeTwoSampleTest(RBFKernel()).update(X, Y[:, :1])),
    (TypeError, r"y must be a tensor, an array .* not ndarray of datetime64", lambda: pairs(X, np.zeros(20, "M8[D]"))),
    (TypeError, r"x must be a tensor, an array .* of object. Convert it", lambda: two(None, Y)),
    (TypeError, r"x must be a tensor, an array .* of object. Convert it", lambda: two({"a": 1.0}, Y)),
    (TypeError, r"x must be a tensor, an array .* of object. Convert it", lambda: two(object(), Y)),
    (ValueError, r"y is not a table of numbers.* Give rows of equal length", lambda: two(X, [[1.0], [1.0, 2.0]])),
    (ValueError, r"Expected y of shape \(n, d\), got a single number", lambda: two(X, 1.0)),
    (ValueError, r"kernel must be one of.*'median'.*not 'mean'", lambda: two(X, Y, "mean")),
    (TypeError, r"kernel must be a gpytorch.kernels.Kernel.*not float", lambda: two(X, Y, 1.0)),
    (ValueError, r"statistic must be one of", lambda: two(X, Y, statistic="linear-time")),
    (ValueError, r"method must be one of", lambda: conditional(X, Y, X, method="partial")),
    (ValueError, r"'transforms' takes no kernel", lambda: conditional(X, X, X, "median", method="transforms")),
    (ValueError, r"one kernel and the biased", lambda: two(X, Y, RBFKernel(), null="gamma", statistic="unbiased")),
    (ValueError, r"'linear' takes neither", lambda: two(X, Y, RBFKernel(), null="gamma", statistic="linear")),
    (ValueError, r"'linear' takes neither", lambda: two(X, Y, RBFKernel(), num_features=9, statistic="linear")),
    (ValueError, "finite", lambda: conditional(X, Y, X / (X - X[3]))),
    (ValueError, r"at least 2 samples", lambda: ke.k_sample_test(X)),
    (ValueError, r"num_features", lambda: two(X, Y, num_features=0)),
    (TypeError, r"RBFKernel .* columns \[0\] of x are categorical", lambda: two(CODES, CODES, RBFKernel())),
    (TypeError, r"columns \[0\] of y", lambda: pairs(X, CODES, RBFKernel(), kernel_y=RBFKernel())),
    (ValueError, r"Categorical columns .* between 0 and 1, not \[5\]", lambda: two(X, Y, categorical=[5])),
]


@pytest.mark.parametrize(("error", "words", "call"), REFUSED)
def test_bad_arguments_are_refused(error, words, call):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("test", TESTS)
def test_bad_rows_kernels_and_counts_are_refused_by_every_test(test):
    with pytest.raises(ValueError, match=r"needs at least \d rows in x, but it has 1"):
        test(X[:1], Y[:1])
    for bad in (float("nan"), float("inf")):
        broken = Y.clone()
        broken[3, 1] = bad
        with pytest.raises(ValueError, match=r"Expected finite values in y, got 1 NaN or infinite.*\(3, 1\)"):
            test(X, broken)
    with pytest.raises(NanError, match=r"Expected finite kernel values, got NaN or infinite ones from NanKernel"):
        test(X, Y, NanKernel())
    for count in (0, -3, 2.5, True):
        with pytest.raises((TypeError, ValueError), match=r"Expected num_permutations"):
            test(X, Y, num_permutations=count)


@pytest.mark.parametrize("test", PAIRED)
def test_rows_that_do_not_pair(test):
    with pytest.raises(ValueError, match=r"one row for each observation, but there are 20 in x, 19 in y"):
        test(X, Y[:19])


@pytest.mark.parametrize("test", TESTS)
def test_constant_samples(test):
    """All equal: nothing speaks against the null hypothesis. Two different constants: everything does."""
    same = torch.ones(20, 2, dtype=torch.float64)
    assert test(same, same, seed=0).pvalue == 1.0
    assert 0 < test(same, Y, seed=0).pvalue <= 1
    assert test(same, same, "median", seed=0).pvalue == 1.0


def test_two_different_constants():
    one = torch.ones(20, 1)
    assert ke.two_sample_test(one, 2 * one, seed=0).pvalue == pytest.approx(1 / 1001)
    assert ke.independence_test(one, one, seed=0, null="gamma", kernel="best").pvalue == 1.0
    assert ke.two_sample_test(one, one, seed=0, null="gamma", kernel="best").pvalue == 1.0
    assert ke.two_sample_test(one, one, RBFKernel(), statistic="linear").pvalue == 1.0
    assert ke.conditional_independence_test(one, one, one, method="kernel").pvalue == 1.0


def test_codes_are_numbers_where_the_caller_says_so():
    for kernel in (RBFKernel(), RBFKernel() * ke.kernels.DeltaKernel()):
        assert ke.two_sample_test(CODES, CODES.flip(0), kernel, seed=0, categorical=False).pvalue == 1.0


@pytest.mark.parametrize(
    "convert",
    [
        Tensor.numpy,
        Tensor.tolist,
        lambda x: x.numpy()[::-1][::-1].astype(">f8"),
        lambda x: np.ma.masked_array(x.numpy()),
        lambda x: pytest.importorskip("pandas").DataFrame(x.numpy()),
    ],
    ids=["array", "lists", "foreign bytes", "masked", "data frame"],
)
def test_arrays_and_lists_are_samples(convert):
    options = {"num_permutations": 50, "seed": 0, "kernel": "median"}
    x, y = convert(X), convert(Y)
    for test in (ke.two_sample_test, ke.k_sample_test, ke.independence_test):
        assert test(x, y, **options).statistic == test(X, Y, **options).statistic
    given = ke.conditional_independence_test(x, y, convert(X + Y), **options)
    assert given.pvalue == ke.conditional_independence_test(X, Y, X + Y, **options).pvalue
    assert hypothesis.log_bayes_factor(x, y, "median") == hypothesis.log_bayes_factor(X, Y, "median")
    stream = partial(hypothesis.LinearTimeTwoSampleTest, RBFKernel(), seed=0)
    streams = [stream().update(*pair) for pair in ((x, y), (X, Y))]
    assert streams[0].result().pvalue == streams[1].result().pvalue


def test_arrays_of_integers_are_categories_and_of_missing_values_are_refused():
    codes = np.arange(20, dtype=np.uint8) % 3
    with pytest.raises(TypeError, match=r"columns \[0\] of x are categorical"):
        ke.two_sample_test(codes, codes.tolist(), RBFKernel())
    assert ke.two_sample_test(codes, codes.tolist(), RBFKernel(), seed=0, categorical=False).pvalue == 1.0
    masked = np.ma.masked_array(X.numpy(), mask=np.arange(40).reshape(20, 2) == 3)
    with pytest.raises(ValueError, match=r"Expected finite values in x, got 1 NaN or infinite.*\(1, 1\)"):
        ke.two_sample_test(masked, Y)


def test_an_array_that_cannot_be_written_stays_what_it_was():
    x = X.numpy().copy()
    x.flags.writeable = False
    assert ke.two_sample_test(x, Y, "median", 50, 0).pvalue == ke.two_sample_test(X, Y, "median", 50, 0).pvalue


@pytest.mark.parametrize("test", [*TESTS, ke.k_sample_test, hypothesis.log_bayes_factor])
@pytest.mark.parametrize(
    ("seed", "error"), [(2**64, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_what_is_no_seed(test, seed, error):
    with pytest.raises(error, match=rf"Expected seed .* got {seed}"):
        test(X, Y, kernel="median", seed=seed)


def test_the_smallest_samples():
    for n in (2, 3, 5):
        assert 0 < ke.two_sample_test(X[:n], Y[:2], num_permutations=50, seed=0).pvalue <= 1
        assert 0 < ke.independence_test(X[:n], Y[:n], num_permutations=50, seed=0).pvalue <= 1


def test_vectors_integers_and_single_precision():
    x, y = X[:, 0], Y[:, 0]
    expected = ke.two_sample_test(x.unsqueeze(-1), y.unsqueeze(-1), seed=0).pvalue
    assert ke.two_sample_test(x, y, seed=0).pvalue == expected
    single = ke.two_sample_test(x.float(), y.float(), seed=0)
    assert single.pvalue == pytest.approx(expected, abs=0.01)
    repeated = torch.arange(4.0).repeat(10)
    assert ke.two_sample_test(repeated, repeated, seed=0).pvalue == 1.0
    assert ke.independence_test(repeated, repeated.square(), seed=0).pvalue < 0.01


def test_text_and_categories_are_tested_like_their_numbers():
    pd = pytest.importorskip("pandas")
    rows = np.random.default_rng(0)
    a, b, number = rows.integers(0, 3, 60), rows.integers(0, 2, 60), rows.normal(size=60)
    names = np.array(["blue", "green", "red"])
    settings = {"num_permutations": 50, "seed": 0}
    expected = ke.two_sample_test(a, b, **settings)
    for convert in (list, np.asarray, pd.Series, lambda v: pd.Series(v, dtype="category"), lambda v: v.astype(object)):
        assert ke.two_sample_test(convert(names[a]), convert(names[b]), **settings).pvalue == expected.pvalue
    expected = ke.independence_test(np.stack([a, number], 1), b, categorical=[0], **settings)
    frame = pd.DataFrame({"color": pd.Categorical(names[a]), "size": number})
    result = ke.independence_test(frame, names[b], **settings)
    assert (result.pvalue, result.statistic) == (expected.pvalue, expected.statistic)
    lists = [[str(name), float(value)] for name, value in zip(names[a], number, strict=True)]
    assert ke.independence_test(lists, names[b], **settings).pvalue == expected.pvalue


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (["a", "b", None, "a"], ["a", "b", "a", "b"], "Column 0 mixes text and None"),
        (["1.5", "2", "-3", "4"], ["1", "2", "3", "4"], "Column 0 holds numbers as text"),
        (["a", "b", "a", "b"], [1, 2, 1, 2], "x and y must have text in the same columns"),
        ([["a", None], ["b", 1.0]], [["a", {}], ["b", 2.0]], "neither text nor numbers"),
    ],
)
def test_text_that_is_no_category_is_refused(x, y, message):
    with pytest.raises(TypeError, match=message):
        ke.two_sample_test(x, y)
    with pytest.raises(TypeError, match="Leave categorical=False out"):
        ke.two_sample_test(["a", "b", "a"], ["a", "b", "b"], categorical=False)
