"""Sections on speed, time and money."""
