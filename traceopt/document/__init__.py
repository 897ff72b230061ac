"""Makes the result document: of one rank from its facts and findings, and of a run from all its ranks."""
