"""traceopt inside other tools: experiment trackers, training frameworks, notebooks. Each is imported only when used."""
