"""Users' YAML files, grids and profiles, with the position of each value for error messages."""
