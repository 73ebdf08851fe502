"""Whether y goes with x in the same way in two samples, though x itself may differ between them."""

from __future__ import annotations

import dataclasses

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .checks import Categorical, check_pairs, check_permutations, generator_of
from .conditioning_set import ConditioningSet
from .samples import check_samples
from .transform_test import ConditionalTestResult, transform_test


def conditional_two_sample_test(
    x: Tensor | ArrayLike,
    y: Tensor | ArrayLike,
    other_x: Tensor | ArrayLike,
    other_y: Tensor | ArrayLike,
    num_permutations: int = 1000,
    seed: int | None = None,
    *,
    categorical: Categorical = None,
    categorical_y: Categorical = None,
) -> ConditionalTestResult:
    """Whether P(y | x) is the same in two samples: concept shift, held apart from covariate shift.

    With s the sample that a row comes from, P(y | x) is the same in both if and only if y and s are independent given
    x. That is tested by the transforms of :func:`kernel_embed.conditional_independence_test`: y minus what x says of it
    against s minus the probability of s given x. Nothing can be said where the two x have no values in common.

    Args:
        x: n rows of the first sample, ``(n, p)``.
        y: what goes with each, ``(n, d)``.
        other_x: m rows of the second sample, ``(m, p)``.
        other_y: what goes with each, ``(m, d)``.
        num_permutations: B, the number of permutations among neighbors in x.
        seed: of the permutations.
        categorical: columns of x that hold categories; by default all where both x are integer or bool.
        categorical_y: those of y.

    Returns:
        p-value, statistic and diagnostics.

    Raises:
        TypeError: if a sample is not made of numbers.
        ValueError: if inputs and answers have different numbers of rows, the two sides different columns, or
            ``num_permutations`` is below 1.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x, e, other_x, f = torch.randn(4, 100, 1, generator=generator)
        >>> other_x = other_x + 0.5
        >>> conditional_two_sample_test(x, x + 0.3 * e, other_x, other_x + 0.3 * f, seed=0).pvalue > 0.05
        True
        >>> conditional_two_sample_test(x, x + 0.3 * e, other_x, 0.5 * other_x + 0.3 * f, seed=0).pvalue < 0.01
        True
    """
    check_permutations(num_permutations)
    given, columns_x = check_samples([x, other_x], ["x", "other_x"], categorical)
    answers, columns_y = check_samples([y, other_y], ["y", "other_y"], categorical_y)
    check_pairs(given[0], answers[0], names="xy")
    check_pairs(given[1], answers[1], names="xy")
    generator = generator_of(seed)
    z, values = torch.cat(given), torch.cat(answers)
    sample = torch.cat([torch.full((len(part), 1), float(s)) for s, part in enumerate(given)]).to(z)
    known = ConditioningSet(z, columns_x, generator)
    left = known.variable(values, columns_y, generator), known.variable(sample, (0,), generator)
    answer = transform_test(*left, known, num_permutations, generator)
    diagnostics = dict(zip(("y", "sample"), answer.diagnostics.values(), strict=True))
    sizes = tuple(map(len, given))
    return dataclasses.replace(answer, test="conditional two-sample test", sizes=sizes, diagnostics=diagnostics)
