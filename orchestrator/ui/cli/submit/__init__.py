"""Commands that submit, continue, stop and repeat runs."""
