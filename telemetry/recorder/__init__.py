"""Recorder: marks real work from inside its process, on the standard library alone."""
