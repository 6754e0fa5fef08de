"""Measuring a host, with permission: grants, ceilings, probes, profiles."""
