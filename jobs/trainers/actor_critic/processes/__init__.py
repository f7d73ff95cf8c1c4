"""A run in several processes: those that play, those that learn, and how they are started and connected."""
