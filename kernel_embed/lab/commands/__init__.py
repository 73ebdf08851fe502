"""The commands of ``kernel-embed``: each module adds its options and runs."""
