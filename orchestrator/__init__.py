"""The control plane: grids become sweeps, plans, jobs and reports. Never imports torch, benchmarl or sky."""

__version__ = "0.1.0"
