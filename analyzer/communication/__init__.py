"""Collectives: how long they take, what they move, what they overlap."""
