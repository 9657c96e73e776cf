"""Encrypted credentials: storing, matching, sealing to their user."""
