"""Which jobs to submit: order, retries, throughput, estimates and the budget."""
