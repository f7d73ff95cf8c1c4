"""The whole fleet on one screen: its values (`model`), looks and decisions (`actions`), the screen (`app`)."""
