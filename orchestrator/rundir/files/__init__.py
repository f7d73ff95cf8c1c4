"""Write, open and parse files, on file systems that fail and lag."""
