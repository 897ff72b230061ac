"""The drawings of the report, as SVG."""
