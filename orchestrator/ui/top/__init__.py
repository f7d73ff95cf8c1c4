"""Show the whole fleet on one screen: values (`model`), looks and decisions (`actions`), screen (`app`)."""
