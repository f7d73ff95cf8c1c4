"""Sections on the runs themselves: conditions, failures, evaluations, provenance."""
