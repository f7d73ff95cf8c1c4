"""Results come home: whole, checked, and only what is new."""
