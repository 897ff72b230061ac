"""Two sides of a change beside each other: what is noise and what is not, and the gates of a pull request."""
