"""Benchmarks: each prints ratios to a reference measured in the same run; `make bench` runs them all."""
