"""The rule engine and the rules: facts to findings."""
