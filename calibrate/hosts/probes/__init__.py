"""One probe per file, each run in a fresh process: `python -m calibrate.hosts.probes.NAME`."""
