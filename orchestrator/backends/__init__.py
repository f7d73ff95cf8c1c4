"""Backends: what starts jobs somewhere. None imports another."""
