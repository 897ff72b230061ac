"""The HTML report, the comparison page, and the notebook summary."""
