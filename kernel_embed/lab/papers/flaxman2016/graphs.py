r"""PC on simulated graphs: how far the graphs found are from the true ones, by the test that PC asks.

A graph of d nodes has every arrow from an earlier to a later node with probability 2/(d − 1), so that a node has two
neighbors on average. With f_p one of x, sin 2x, tanh 2x and x²/2 for each arrow, and e standard normal,

.. math::
    \text{additive:} \quad x_j = \sum_p f_p(x_p) + 0.7\, e_j , \qquad
    \text{multiplicative:} \quad x_j = \sum_p f_p(x_p) + 0.7\, e_j \exp\Big(\tfrac12 \sum_p x_p\Big) ,

over the parents p of j, every column brought to mean 0 and variance 1. PC returns a graph in which some edges have no
direction; the structural Hamming distance counts the pairs of nodes between which it differs from that of the true
graph's equivalence class.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....hypothesis import LevelWarning
from ....hypothesis.causal import register_causal_test
from ....results import Record, Results, column, standard_error, table
from ..experiment import Experiment, Settings

NOISES = ("additive", "multiplicative")
NODES = (5, 7, 10)
OURS = "kernel_embed"
TESTS = (OURS, "kci", "fisherz")
LEVEL = 0.05
NUM_ROWS = 200
FUNCTIONS: tuple[Callable[[NDArray[np.float64]], NDArray[np.float64]], ...] = (
    lambda x: x,
    lambda x: np.sin(2 * x),
    lambda x: np.tanh(2 * x),
    lambda x: 0.5 * x**2,
)


def simulated(noise: str, d: int, repetition: int, n: int = NUM_ROWS) -> tuple[NDArray[np.float64], NDArray[np.int_]]:
    """The data ``(n, d)`` and the arrows ``(d, d)``, 1 from row to column, of one graph.

    Example:
        >>> x, arrows = simulated("additive", 5, 0)
        >>> x.shape, bool((np.triu(arrows, 1) == arrows).all())
        ((200, 5), True)
    """
    draw = np.random.RandomState(1000 * repetition + d)
    arrows = np.triu(draw.rand(d, d) < 2.0 / (d - 1), 1).astype(int)
    which = draw.randint(len(FUNCTIONS), size=(d, d))
    x = np.zeros((n, d))
    for j in range(d):
        parents = np.flatnonzero(arrows[:, j])
        size = np.exp(0.5 * x[:, parents].sum(1)) if noise == "multiplicative" else 1.0
        x[:, j] = 0.7 * size * draw.randn(n)
        for p in parents:
            x[:, j] += FUNCTIONS[which[p, j]](x[:, p])
        x[:, j] = (x[:, j] - x[:, j].mean()) / x[:, j].std()
    return x, arrows


def equivalence_class(arrows: NDArray[np.int_]) -> NDArray[np.int_]:
    """The graph of the equivalence class of these arrows, as causal-learn's matrix."""
    from causallearn.graph.Dag import Dag
    from causallearn.graph.GraphNode import GraphNode
    from causallearn.utils.DAG2CPDAG import dag2cpdag

    nodes = [GraphNode(f"X{j + 1}") for j in range(len(arrows))]
    dag = Dag(nodes)
    for i, j in np.argwhere(arrows):
        dag.add_directed_edge(nodes[i], nodes[j])
    return np.asarray(dag2cpdag(dag).graph, dtype=int)


def distances(found: NDArray[np.int_], truth: NDArray[np.int_]) -> dict[str, int]:
    """The structural Hamming distance, the edges of the truth that were not found, and those found that it lacks.

    Example:
        >>> truth = np.array([[0, -1, 0], [1, 0, -1], [0, -1, 0]])             # 1 → 2 – 3
        >>> found = np.array([[0, -1, -1], [-1, 0, 0], [-1, 0, 0]])            # 1 – 2, 1 – 3
        >>> distances(found, truth)
        {'shd': 3, 'missed': 1, 'false': 1, 'edges': 2}
    """
    i, j = np.triu_indices(len(truth), 1)
    differ = (found[i, j] != truth[i, j]) | (found[j, i] != truth[j, i])
    has, should = found[i, j] != 0, truth[i, j] != 0
    return {
        "shd": int(differ.sum()),
        "missed": int((should & ~has).sum()),
        "false": int((has & ~should).sum()),
        "edges": int(should.sum()),
    }


@dataclass(frozen=True)
class CausalGraphs(Experiment):
    """One record for each test on each graph."""

    name = "causal-graphs"
    shows = "how far PC's graphs are from the true ones with this test, causal-learn's KCI and Fisher's z"
    duration = "an hour"
    key = ("experiment", "noise", "nodes", "repetition", "test")
    tags = ("causal-graphs",)
    options = frozenset({"repetitions", "datasets", "methods"})

    def check(self, settings: Settings) -> None:
        """Refuse noises and tests that do not exist."""
        super().check(settings)
        for given, known, what in ((settings.datasets, NOISES, "data sets"), (settings.methods, TESTS, "methods")):
            if not set(given or ()) <= set(known):
                raise ValueError(
                    f"Expected {what} among {', '.join(known)}, got {', '.join(given or ())}. Choose among these."
                )

    def run(self, results: Results, settings: Settings) -> None:
        """Every test on the same graphs; ``datasets`` chooses among the noises, ``methods`` among the tests."""
        done = results.names()
        sizes = (4,) if settings.quick else NODES
        for repetition in range(settings.repetitions or (1 if settings.quick else 20)):
            for d in sizes:
                for noise in settings.datasets or NOISES:
                    for test in settings.methods or TESTS:
                        if ("causal-graphs", noise, d, repetition, test) not in done:
                            results.extend([_record(noise, d, repetition, test, 60 if settings.quick else NUM_ROWS)])

    def summary(self, records: Sequence[Record]) -> str:
        """The mean distance with its standard error, and the share of edges that were found and of gaps that were not
        left empty."""
        rows = []
        for noise in NOISES:
            for d in sorted({int(str(record["nodes"])) for record in records}):
                for test in TESTS:
                    own = [r for r in records if (r["noise"], r["nodes"], r["test"]) == (noise, d, test)]
                    if own:
                        rows.append([noise, str(d), test, *_figures(own, d)])
        head = ["noise", "nodes", "test", "graphs", "distance", "± s.e.", "edges found", "false edges", "seconds"]
        return table(head, rows)


def _figures(records: Sequence[Record], d: int) -> list[str]:
    shd, missed, false, edges = (column(records, name) for name in ("shd", "missed", "false", "edges"))
    gaps = d * (d - 1) / 2 - edges
    return [
        str(len(shd)),
        f"{shd.mean():.2f}",
        f"{standard_error(shd):.2f}",
        f"{1.0 - missed.sum() / max(edges.sum(), 1):.2f}",
        f"{false.sum() / max(gaps.sum(), 1):.3f}",
        f"{column(records, 'seconds').mean():.1f}",
    ]


def _record(noise: str, d: int, repetition: int, test: str, n: int) -> Record:
    from causallearn.search.ConstraintBased.PC import pc

    x, arrows = simulated(noise, d, repetition, n)
    asked = register_causal_test(num_permutations=199, seed=repetition) if test == OURS else test
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelWarning)
        found = np.asarray(pc(x, LEVEL, asked, show_progress=False).G.graph, dtype=int)
    seconds = time.process_time() - start
    name: Record = {"experiment": "causal-graphs", "noise": noise, "nodes": d, "repetition": repetition, "test": test}
    return {**name, "n": n, "level": LEVEL, "seconds": seconds, **distances(found, equivalence_class(arrows))}
