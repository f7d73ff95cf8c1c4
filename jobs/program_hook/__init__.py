"""A folder for PYTHONPATH of the programs that `command` runs start: Python imports sitecustomize from it."""
