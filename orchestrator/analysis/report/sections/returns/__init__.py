"""Sections on returns: what learned, and which variants lead."""
