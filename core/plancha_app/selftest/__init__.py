"""`plancha selftest isolation`: two tenants, and what one of them can tell of the other."""
