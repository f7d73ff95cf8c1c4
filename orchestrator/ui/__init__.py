"""User interfaces: commands, the live screen, the monitor and the doctor."""
