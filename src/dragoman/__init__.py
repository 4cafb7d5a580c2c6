"""Dragoman interprets LLM tool calls between wire dialects."""
