"""What importing the package loads, and what it costs."""

import subprocess
import sys

import pytest

HEAVY = ("sympy", "sklearn", "scipy.optimize", "scipy.stats", "matplotlib", "pandas", "highspy", "joblib")


def loaded(code: str) -> list[str]:
    """Which of the heavy modules are loaded after ``code``, in a process of its own."""
    script = f"{code}\nimport sys\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    "code",
    [
        "import kernel_embed",
        "import kernel_embed.cli",
        "import kernel_embed.testing",
        "import kernel_embed.voting",
        "import kernel_embed.plots",
    ],
)
def test_a_process_loads_only_what_it_uses(code):
    assert loaded(f"import gpytorch, pyro\n{code}") == loaded("import gpytorch, pyro")


def test_front_ends_are_loaded_when_asked_for():
    assert "sklearn" in loaded("import kernel_embed as ke\nke.MulticlassEmbeddingClassifier")


def test_a_fit_loads_no_computer_algebra():
    """PyTorch's own broadcast_shapes would, at its first call."""
    code = (
        "import kernel_embed as ke, torch\nx = torch.arange(24.0).reshape(12, 2)\n"
        "ke.MulticlassEmbeddingClassifier(progress=False).fit(x.numpy(), [0, 1] * 6).predict_proba(x.numpy())"
    )
    assert "sympy" not in loaded(code)


def test_importing_costs_little_above_the_libraries_it_stands_on():
    """At most 0.3 s of processor time on an idle machine; twice that here, where other tests run beside."""
    script = (
        "import time, gpytorch, pyro\nbegan = time.process_time()\nimport kernel_embed\n"
        "print(time.process_time() - began)"
    )
    times = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        times.append(float(done.stdout))
    assert min(times) < 0.6, f"importing kernel_embed took {times} s above gpytorch and pyro"
