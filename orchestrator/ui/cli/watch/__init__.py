"""Commands that show jobs, runs, machines and logs."""
