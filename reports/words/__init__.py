"""Names, sentences and styles that all formats share."""
