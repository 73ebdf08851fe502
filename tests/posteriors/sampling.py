"""A quick posterior, for tests that ask what it answers and not how it was drawn."""

import warnings

import kernel_embed as ke
from kernel_embed.posteriors import Laplace


def draw(embedding, objective, x, y=None, **settings):
    settings = {"sampler": Laplace(), "num_samples": 6, "num_chains": 2, "seed": 0, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ke.posteriors.PosteriorWarning)
        return ke.sample_posterior(embedding, objective, x, y, **settings)
