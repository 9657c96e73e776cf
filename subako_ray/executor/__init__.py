"""Runs sessions of a plan: the call pipeline, tool sources, the event log, Ray in thin shells."""
