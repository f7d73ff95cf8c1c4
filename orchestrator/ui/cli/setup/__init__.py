"""Commands that set up a project and check a machine."""
