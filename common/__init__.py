"""What every experiment stands on: configuration, sources, weights, reference, checks, devices."""
