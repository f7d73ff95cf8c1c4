"""Measured speeds of finished runs, shipped speeds, and lookup for planned runs."""
