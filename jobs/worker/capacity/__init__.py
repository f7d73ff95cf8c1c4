"""How much a job has for its runs: slots with cores and GPUs, and its share of a budget."""
