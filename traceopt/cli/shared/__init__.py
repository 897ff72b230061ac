"""What several commands share: options, what they write, gates."""
