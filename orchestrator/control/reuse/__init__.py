"""What runs to do need not train: results of libraries, and the final states of shorter runs."""
