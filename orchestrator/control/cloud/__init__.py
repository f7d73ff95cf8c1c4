"""Rented machines of a sweep: their results here, decisions there, what they cost."""
