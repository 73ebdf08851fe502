"""Kernels of this library, as GPyTorch kernels."""
