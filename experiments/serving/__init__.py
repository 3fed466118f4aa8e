"""OpenAI-compatible server: an HTTP application, a line of requests, and the engine that answers them."""
