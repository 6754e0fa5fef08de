"""Corrections that keep stated coverage true while hosts change."""
