"""The words after `plancha`, one noun a file. Each imports what it needs when it runs."""
