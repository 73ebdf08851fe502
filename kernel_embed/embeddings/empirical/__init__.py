"""The empirical embedding μ̂ and its slope ‖∇μ̂‖ at many points, for any kernel."""

from .embedding import EmpiricalEmbedding, empirical_embedding

__all__ = ["EmpiricalEmbedding", "empirical_embedding"]
