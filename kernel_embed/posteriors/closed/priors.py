"""The priors of a posterior as densities of the vector u = log θ that is sampled."""

from __future__ import annotations

from ...learning.closed import LogPriors
from ...learning.parameters import ParameterVector
from ..site import PriorSite


def closed_priors(sites: list[PriorSite], vector: ParameterVector) -> LogPriors | None:
    """The priors of ``sites``, one for each entry of ``vector``; ``None`` where one has no closed form."""
    by_parameter = {site.parameter: site for site in sites}
    if None in by_parameter or len(by_parameter) != len(sites) or set(by_parameter) != set(vector.named):
        return None
    parts: list[LogPriors] = []
    for name, raw in vector.named.items():
        site = by_parameter[name]
        if not site.on_log_scale or bool(vector.module.constraint_for_parameter_name(name).lower_bound.any()):
            return None
        part = LogPriors.of(site.prior, raw)
        if part is None:
            return None
        parts.append(part)
    return LogPriors.joined(parts)
