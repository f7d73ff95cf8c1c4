"""Runs of Weights & Biases: read offline, uploaded later."""
