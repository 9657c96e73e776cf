"""Subako gives AI agents their tools: a compiler for agent versions, an executor on Ray."""

__version__ = "0.0.1"
