"""Draw pictures: themes, axes and legends; SVG, PDF and PNG files of them."""
