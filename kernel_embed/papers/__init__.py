"""The tables and figures of the three papers, as runnable experiments."""
