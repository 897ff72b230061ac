"""The figures of `result.figures`, one module each. `draw` makes Plotly's dictionary of one. It needs no Plotly, so the
HTML report can draw the same with plotly.js. Colors are those of palette.css: "var(--compute)".
"""
