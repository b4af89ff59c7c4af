"""Endpoints with the OpenAI chat API as an engine."""
