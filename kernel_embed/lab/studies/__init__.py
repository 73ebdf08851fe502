"""Studies of the library's methods beyond the papers."""

from .rejections import RejectionStudy, rejection_study

__all__ = ["RejectionStudy", "rejection_study"]
