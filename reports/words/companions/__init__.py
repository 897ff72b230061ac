"""The words for what files beside the trace say."""
