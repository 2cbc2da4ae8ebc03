"""What a worker measures of itself, in columns, and how a scraper is told. Start at `meters`."""
