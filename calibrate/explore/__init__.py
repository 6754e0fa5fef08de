"""Exploration that spends no safety, and what its log can tell of other policies."""
