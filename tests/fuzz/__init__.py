"""Generated calls of every public entry point with broken data, kernels and settings.

``python -m pytest tests/fuzz`` runs a few hundred of them, and with ``--fuzz 10000`` at least so many.
"""
