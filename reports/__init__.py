"""Renderers of the result document, one per format."""
