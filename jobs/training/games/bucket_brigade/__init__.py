"""Bucket Brigade: agents on a ring of houses choose each night a house, work or rest, and a signal."""
