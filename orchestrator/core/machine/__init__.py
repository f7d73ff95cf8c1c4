"""The machine, its files, and programs here and behind ssh."""
