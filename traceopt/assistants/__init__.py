"""traceopt for coding assistants: the MCP server and the skill."""
