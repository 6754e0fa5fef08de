"""Thin typed clients of the API."""
