"""The version, in a module of its own so that every part may write it into its files."""

__version__ = "0.1.0"
