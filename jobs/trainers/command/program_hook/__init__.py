"""A folder for PYTHONPATH of the programs of `command` runs: Python imports sitecustomize from it."""
