"""Text of a version manifest in, a tool plan or diagnostics out."""
