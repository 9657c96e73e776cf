"""The project's figures, each beside a peer that does the same work."""
