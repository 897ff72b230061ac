"""FLOP and bytes of one call of an operator, from its shapes."""
