"""The code that jobs run: the snapshot kept with a sweep, kinds of files, the hash of a source file."""
