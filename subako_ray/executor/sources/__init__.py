"""The tool sources, one file per kind."""
