"""A job on a cloud instance, and the stores that it takes results to."""
