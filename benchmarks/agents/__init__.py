"""What an assistant can learn from traceopt's output, per token, compared with raw traces and operator tables."""
