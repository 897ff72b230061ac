"""The causes of time: one table, one row a cause, with what recognizes it and all that is said of it."""
