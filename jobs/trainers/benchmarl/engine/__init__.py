"""BenchMARL's experiment, resumed exactly: its loop, its state and its evaluations."""
