"""How a posterior is sampled."""
