"""Inside the script's process: hooks into torch, step detection, endings."""
