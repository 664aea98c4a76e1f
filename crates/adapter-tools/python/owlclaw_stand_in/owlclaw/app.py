"""The application, where the package has it."""

from . import OwlClaw

__all__ = ["OwlClaw"]
