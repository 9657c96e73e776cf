"""Programs for people who work on the project, run by `make`."""
