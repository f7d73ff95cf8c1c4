"""What a person uses: commands, the live screen, the monitor and the doctor."""
