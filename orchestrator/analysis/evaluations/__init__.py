"""Play trained policies, and set what they return side by side."""
