"""State what the results of runs allow to be said, and what they do not."""
