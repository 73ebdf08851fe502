"""The ways to learn a kernel, side by side on one table."""
