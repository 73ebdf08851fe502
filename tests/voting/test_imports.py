"""Heavy libraries are imported only when a vote uses them."""

import subprocess
import sys

SCRIPT = """
import sys, types, pathlib
package = types.ModuleType("kernel_embed")
package.__path__ = [{path!r}]  # the subpackage without the imports of kernel_embed/__init__.py
sys.modules["kernel_embed"] = package
import kernel_embed.voting
heavy = [name for name in ("highspy", "scipy.optimize", "scipy.stats", "sklearn", "matplotlib", "pandas")
         if name in sys.modules]
assert not heavy, heavy
import numpy as np
x = np.random.default_rng(0).normal(size=(30, 2))
path = kernel_embed.voting.vote_path(None, x, x[:, 0] > 0, lams=[1e-2], betas=[1e-2])
assert path[0].solution.converged and "highspy" in sys.modules and "sklearn" not in sys.modules
"""


def test_highs_and_scikit_learn_are_loaded_when_used():
    import kernel_embed

    script = SCRIPT.format(path=kernel_embed.__path__[0])
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
