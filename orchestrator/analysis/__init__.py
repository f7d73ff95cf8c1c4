"""Tables, statistics, comparisons, evaluations and reports of finished runs."""
