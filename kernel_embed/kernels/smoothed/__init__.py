"""The smoothed kernel r = ∫ k(·, u) k(u, ·) ν(du) of any kernel, and the measures ν."""
