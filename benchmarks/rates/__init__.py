"""Makes the tables of rates that are shipped with the package."""
