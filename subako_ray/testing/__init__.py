"""What users of Subako test with."""
