"""OpenAI-compatible server: an HTTP application, a queue, and the worker process that holds the engine."""
