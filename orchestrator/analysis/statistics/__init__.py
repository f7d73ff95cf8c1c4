"""Statistics of plain numbers: it knows no runs."""
