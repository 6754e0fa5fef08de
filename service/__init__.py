"""Every edge with the outside: HTTP, command line, demo."""
