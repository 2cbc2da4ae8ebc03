"""The settings there are, told from their own definitions: as a page, and as a file to fill in."""
