"""The files of one rank as one trace."""
