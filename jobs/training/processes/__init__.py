"""The processes of a run: their tree, memory, connections and ends. None of it decides a result."""
