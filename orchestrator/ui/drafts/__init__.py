"""Draft a grid from a program, a job script or another program's sweep file."""
