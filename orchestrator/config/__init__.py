"""What is to be run: grids, sweeps, profiles, trainers and the project's code."""
