"""The tables of the reports: the columns of each, declared once."""
