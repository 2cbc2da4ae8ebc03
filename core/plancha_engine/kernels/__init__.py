"""What runs on CPU cores: numba, compiled once a machine and kept in a cache folder."""
