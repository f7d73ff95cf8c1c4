"""Overrides as a person types them for Hydra, read by Hydra's own parser."""
