"""The sections of the HTML report that come from files beside the trace."""
