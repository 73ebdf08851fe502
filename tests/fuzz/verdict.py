"""What may come of a call: an answer without NaN, with probabilities in [0, 1], or an error that says what to do."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator

import gpytorch
import linear_operator
import numpy as np
import torch
from linear_operator.utils.errors import NanError, NotPSDError

from .entries import Probabilities
from .inputs import Inputs

SECONDS = 30.0
"""A call of these sizes takes milliseconds of processor time; one that takes more than this hangs."""
WAITING = 600.0
"""Seconds on the clock after which a call that does not even compute hangs; a busy machine is slow."""
REFUSALS = (ValueError, TypeError, MemoryError, OSError, RuntimeError, NotPSDError, NanError, ArithmeticError)
FORM = re.compile(r".{15,}[.?!)]", re.DOTALL)
"""A whole sentence."""


class HangError(BaseException):
    """Not an ``Exception``, so that nobody on the way catches it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`HangError` in what runs longer; only in the main thread of systems that have alarms."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise HangError(f"no end after {seconds:g} s")

    clocks = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, WAITING))
    before = [signal.signal(number, stop) for _, number, _ in clocks]
    for clock, _, limit in clocks:
        signal.setitimer(clock, limit)
    try:
        yield
    finally:
        for (clock, number, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(clock, 0.0)
            signal.signal(number, handler)


FINE, REFUSED = "fine", "refused"


def outcome_of(call: Callable[[Inputs], object], inputs: Inputs) -> str:
    """``"fine"``, ``"refused"``, or what is wrong with a call."""
    before = settings_of_process()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            with time_limit(SECONDS):
                answer = call(inputs)
        except HangError as hang:
            return f"hang: {hang}"
        except Exception as error:
            found = fault_of_error(error) or REFUSED
        else:
            found = fault_of_answer(answer) or FINE
    changed = [name for name, value in settings_of_process().items() if value != before[name]]
    return f"changed for everybody: {', '.join(changed)}" if changed else found


def settings_of_process() -> dict[str, object]:
    """What belongs to the caller and has to be left as it was."""
    return {
        "torch's generator": torch.get_rng_state().numpy().tobytes(),
        "NumPy's generator": str(np.random.get_state(legacy=False)),  # noqa: NPY002 — to see that nobody uses it
        "default dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "denormal numbers": torch.tensor(1e-320, dtype=torch.float64).mul(1.0).item(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "max_cholesky_size": linear_operator.settings.max_cholesky_size.value(),
        "debug": gpytorch.settings.debug.on(),
        "fast computations": linear_operator.settings.fast_computations.log_prob.on(),
        "jitter": linear_operator.settings.cholesky_jitter.value(torch.float64),
        "NumPy's errors": np.geterr(),
        "open files": [number for number in OPEN_FILES if _is_open(number)],
    }


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


OPEN_FILES = [number for number in range(32) if _is_open(number)]
"""Descriptors of the process before the first call: those of a caller, which nobody else may close."""


def fault_of_error(error: Exception) -> str | None:
    """A refusal says what was expected, what came and what to do. Estimators refuse in the words of scikit-learn."""
    frames = traceback.extract_tb(error.__traceback__)
    if any("/sklearn/" in frame.filename for frame in frames[-2:]):
        return None
    if str(error).startswith("The feature names should match"):
        return None  # scikit-learn's words, which its checks look for
    if isinstance(error, RuntimeError) and "a kernel that works" in str(error):
        return None  # raised by the kernel itself
    if isinstance(error, TypeError) and re.search(r"unsupported operand type|can't multiply sequence", str(error)):
        return None  # Python's own words for a + b and "1" * a
    place = next(
        (
            f"{f.filename.split('kernel_embed/')[-1]}:{f.lineno}"
            for f in reversed(frames)
            if "kernel_embed" in f.filename
        ),
        "?",
    )
    if not isinstance(error, REFUSALS):
        return f"{type(error).__name__} at {place}: {error}"
    if FORM.fullmatch(str(error)) is None:
        return f"unclear {type(error).__name__} at {place}: {error}"
    return None


def fault_of_answer(answer: object) -> str | None:
    """NaN anywhere, or a probability that is none."""
    if isinstance(answer, Probabilities):
        fault = fault_of_answer(answer.values)
        if fault is not None:
            return fault
        p = np.asarray(answer.values.detach() if isinstance(answer.values, torch.Tensor) else answer.values)
        return None if ((p >= 0) & (p <= 1)).all() else f"probability outside [0, 1]: {p.min()} to {p.max()}"
    if isinstance(answer, torch.Tensor):
        return "silent NaN" if answer.is_floating_point() and bool(answer.isnan().any()) else None
    if isinstance(answer, np.ndarray):
        return "silent NaN" if answer.dtype.kind == "f" and bool(np.isnan(answer).any()) else None
    if isinstance(answer, float):
        return "silent NaN" if answer != answer else None
    if isinstance(answer, list | tuple):
        return next((fault for part in answer if (fault := fault_of_answer(part)) is not None), None)
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        return fault_of_answer([getattr(answer, field.name) for field in dataclasses.fields(answer)])
    return None
