"""Runs by what they differ in, and what that shows: returns, curves, speed, scaling."""
