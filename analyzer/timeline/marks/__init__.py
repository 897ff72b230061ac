"""What marks the steps on the host."""
