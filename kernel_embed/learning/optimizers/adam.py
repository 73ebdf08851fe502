"""Mini-batches: Algorithm 1 with Adam."""

from __future__ import annotations

import copy

import numpy as np
import torch
from linear_operator.utils.errors import NanError

from ...progress import progress_bar
from ..batches import Batches
from ..state import Search

SETTLED = 1e-3
"""Adam counts as converged when its last ten epochs differ by less than this share of their mean."""


def adam(search: Search, batches: Batches, num_epochs: int, learning_rate: float, progress: bool | None) -> None:
    """Take a gradient step for each batch, and remember the epoch with the lowest mean objective."""
    optimizer = torch.optim.Adam(search.vector.parameters, lr=learning_rate)
    first_epoch = 0
    if search.optimizer_state:
        optimizer.load_state_dict(search.optimizer_state["adam"])
        search.restore(search.optimizer_state["point"].numpy(), search.optimizer_state["buffers"])
        batches.restore(search.optimizer_state["batches"])
        first_epoch = search.optimizer_state["epoch"]
    with progress_bar(num_epochs, "fit", progress) as bar:
        bar.update(first_epoch)
        for epoch in range(first_epoch, num_epochs):
            point, totals, num_batches = search.vector.get(), dict[str, float](), 0
            for x, y in batches.epoch(epoch):
                optimizer.zero_grad()
                loss, terms = search.loss(x, y)
                if not torch.isfinite(loss):
                    raise NanError(
                        f"Expected a finite objective, got {loss.item()} in epoch {epoch}. "
                        "A smaller learning_rate usually avoids this."
                    )
                search.backward(loss)
                optimizer.step()
                search.vector.project()
                search.num_evaluations += 1
                num_batches += 1
                for name, term in terms.items():
                    totals[name] = totals.get(name, 0.0) + term
            if num_batches == 0:
                raise ValueError(
                    f"Expected at least one batch in an epoch, got none in epoch {epoch}. Is the data empty?"
                )
            means = {name: total / num_batches for name, total in totals.items()}
            value = sum(means.values())
            # With one batch the value belongs to the point before the step; with several, to the path of the epoch.
            search.record(value, means, point if num_batches == 1 else search.vector.get())
            search.optimizer_state = {
                "adam": copy.deepcopy(optimizer.state_dict()),  # the optimiser writes into its own
                "point": torch.as_tensor(search.vector.get(), device="cpu"),
                "buffers": search.buffers(),
                "batches": batches.state(),
                "epoch": epoch + 1,
            }
            bar.update()
            bar.set_postfix_str(f"{value:.4f}", refresh=False)
    tail = [record["value"] for record in search.history[-10:]]
    search.converged = len(tail) == 10 and bool(max(tail) - min(tail) <= SETTLED * abs(np.mean(tail)))
    search.message = f"ran all {num_epochs} epochs"
