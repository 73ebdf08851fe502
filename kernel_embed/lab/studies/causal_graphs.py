r"""PC on simulated graphs: how far its graphs are from the true ones, by the conditional test that it uses.

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

import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...hypothesis import LevelWarning
from ...hypothesis.causal import register_causal_test
from ...results import Record, column, number, standard_error, table
from ..experiment import Experiment, Settings
from ..runner import Case

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


def distances(graph: NDArray[np.int_], truth: NDArray[np.int_]) -> dict[str, int]:
    """The structural Hamming distance, the missing edges, the false edges, and the number of true ones.

    Example:
        >>> truth = np.array([[0, -1, 0], [1, 0, -1], [0, -1, 0]])             # 1 → 2 – 3
        >>> graph = np.array([[0, -1, -1], [-1, 0, 0], [-1, 0, 0]])            # 1 – 2, 1 – 3
        >>> distances(graph, truth)
        {'shd': 3, 'missed': 1, 'false': 1, 'edges': 2}
    """
    i, j = np.triu_indices(len(truth), 1)
    differ = (graph[i, j] != truth[i, j]) | (graph[j, i] != truth[j, i])
    has, should = graph[i, j] != 0, truth[i, j] != 0
    return {
        "shd": int(differ.sum()),
        "missed": int((should & ~has).sum()),
        "false": int((has & ~should).sum()),
        "edges": int(should.sum()),
    }


def cases(settings: Settings) -> Iterator[Case]:
    """Every test on the same graphs; ``datasets`` selects the noises, ``methods`` the tests."""
    noises, tests = settings.selected("datasets", NOISES, NOISES), settings.selected("methods", TESTS, TESTS)
    repetitions = range(settings.repetitions or (1 if settings.quick else 20))
    sizes, n = ((4,), 60) if settings.quick else (NODES, NUM_ROWS)
    for repetition, d, noise, test in itertools.product(repetitions, sizes, noises, tests):
        key: Record = {"experiment": "causal-graphs", "noise": noise, "nodes": d}
        yield Case({**key, "repetition": repetition, "test": test}, partial(_learn, noise, d, repetition, test, n))


def _learn(noise: str, d: int, repetition: int, test: str, n: int) -> Record:
    from causallearn.search.ConstraintBased.PC import pc

    x, arrows = simulated(noise, d, repetition, n)
    name = register_causal_test(num_permutations=199, seed=repetition) if test == OURS else test
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelWarning)
        graph = np.asarray(pc(x, LEVEL, name, show_progress=False).G.graph, dtype=int)
    seconds = time.process_time() - start
    return {"n": n, "level": LEVEL, "seconds": seconds, **distances(graph, equivalence_class(arrows))}


def summary(records: Sequence[Record]) -> str:
    """The mean distance with its standard error, the share of edges found, and that of gaps with a false edge."""
    sizes = sorted({int(number(record, "nodes")) for record in records})
    rows = []
    for noise, d, test in itertools.product(NOISES, sizes, TESTS):
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


CAUSAL_GRAPHS = Experiment(
    "causal-graphs", "how far PC's graphs are from the true ones with this test, causal-learn's KCI and Fisher's z",
    "an hour", ("experiment", "noise", "nodes", "repetition", "test"), cases, summary,
    options=frozenset({"repetitions", "datasets", "methods"}),
)  # fmt: skip
