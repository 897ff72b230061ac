"""Text for coding assistants: the short report, and one fix as a prompt."""
