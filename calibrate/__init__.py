"""Whether what was said was true: evidence, hosts measured with permission."""
