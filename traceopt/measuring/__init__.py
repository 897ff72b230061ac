"""Measures on this machine what a saving needs to know: experiments in a process of their own, within a budget."""
