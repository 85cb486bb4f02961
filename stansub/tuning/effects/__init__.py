"""Effects with unknown scales: inner coordinates and normal priors, found by evaluations and proved."""
