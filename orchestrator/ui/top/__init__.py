"""Show the whole fleet on one screen: values (`model`), access (`fleet_access`), screen (`app`)."""
