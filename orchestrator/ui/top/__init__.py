"""The whole fleet on one screen: what there is to see (`model`), how one looks (`fleet`), and the screen."""
