"""Files recorded beside a trace that answer what a trace alone cannot: one module or folder for each kind."""
