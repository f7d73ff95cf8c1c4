"""The input of a sweep: grids, profiles, trainers and the project's code."""
