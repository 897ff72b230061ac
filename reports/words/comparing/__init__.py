"""The words of comparisons, and of fixes that were tried."""
