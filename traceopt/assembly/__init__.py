"""Assembles the result document of one rank from facts and findings."""
