"""Interpret the `command` of a grid."""
