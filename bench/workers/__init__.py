"""One module a peer: each runs in its peer's own environment and answers requests in JSON lines."""
