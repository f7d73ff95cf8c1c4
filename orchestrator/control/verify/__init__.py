"""Train finished runs again and compare the metrics, bit for bit."""
