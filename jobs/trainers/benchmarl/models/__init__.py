"""Models that BenchMARL does not have."""
