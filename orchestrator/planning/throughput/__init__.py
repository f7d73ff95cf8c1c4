"""Measured speeds of finished runs, speeds reported by others, and lookup for planned runs."""
