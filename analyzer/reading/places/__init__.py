"""Where the bytes of a trace are: object stores, archives."""
