"""What a user would do instead, one named rule per file; each learns outcomes in order of becoming known."""
