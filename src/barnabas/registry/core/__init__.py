"""What the registry knows and decides: no I/O."""
