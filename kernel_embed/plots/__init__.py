"""Pictures of classifiers, embeddings, posteriors and comparisons."""
