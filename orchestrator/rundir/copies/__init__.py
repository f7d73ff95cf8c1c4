"""Copies of a results tree, and parts of one on other machines."""
