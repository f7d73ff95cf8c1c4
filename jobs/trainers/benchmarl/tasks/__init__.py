"""Tasks that BenchMARL does not have."""
