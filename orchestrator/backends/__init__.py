"""Backends start jobs: local processes, Slurm, SkyPilot. No backend imports another."""
