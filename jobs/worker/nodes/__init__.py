"""A job on several nodes: agents on the other nodes, the worker's connections to them, launchers."""
