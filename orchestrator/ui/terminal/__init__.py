"""What commands print in a terminal: tables that fit its width, and what is under way."""
