"""Types, errors, units, formatting, hardware facts, clients of ssh and S3. Imports nothing of ours."""
