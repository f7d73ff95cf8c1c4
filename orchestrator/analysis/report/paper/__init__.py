"""Figures and tables for a paper: learning curves on one figure, aggregate scores, LaTeX."""
