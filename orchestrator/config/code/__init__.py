"""The code of jobs: its snapshot with a sweep, kinds of files, the hash of a source file."""
