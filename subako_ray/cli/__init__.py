"""The command `subako`, one file per command."""
