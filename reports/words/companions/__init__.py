"""What the reports show of the files beside a trace: one module for each kind of file."""
