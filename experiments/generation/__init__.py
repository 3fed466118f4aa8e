"""Generation: a request, the engine that decodes it over one KV cache, and its text."""
