"""The built-in rules: one module a rule, `<code>_<name>.py`, each defining exactly one concrete Rule."""
