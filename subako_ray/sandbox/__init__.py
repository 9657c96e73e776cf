"""Isolation by nsjail: one-shot function calls and long-lived sandboxes."""
