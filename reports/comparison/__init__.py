"""Renderers of the comparison document: terminal, HTML, Markdown; they read it alone."""
