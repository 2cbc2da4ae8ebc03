"""Models, attention, sampling and weights: what computes a step on one device."""
