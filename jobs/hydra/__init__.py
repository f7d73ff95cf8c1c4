"""Hydra's grammar: overrides, composition and suggestions for misspelt keys."""
