"""Evidence: whether what was answered came true."""
