"""What is filled in once all events of a file are read: ids of launches, lines of calls."""
