"""Facts and findings to the result document of one rank."""
