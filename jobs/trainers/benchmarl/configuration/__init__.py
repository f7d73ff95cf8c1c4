"""BenchMARL's configuration of a run: composed, checked, and its names spelled."""
