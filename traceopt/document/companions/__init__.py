"""The sections of the result document that come from files beside the trace."""
