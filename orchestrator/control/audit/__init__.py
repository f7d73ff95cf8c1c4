"""Audit a program: does a run that is killed and goes on from its checkpoint end with the same numbers?"""
