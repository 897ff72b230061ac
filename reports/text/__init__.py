"""Terminal and Markdown output."""
