"""How an objective is minimised."""
