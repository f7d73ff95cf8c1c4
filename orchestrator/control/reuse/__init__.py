"""What runs to do need not train: the final states of shorter runs."""
