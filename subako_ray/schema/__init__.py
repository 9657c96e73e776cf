"""Types of everything Subako writes to disk or the wire, names, limits, canonical form."""
