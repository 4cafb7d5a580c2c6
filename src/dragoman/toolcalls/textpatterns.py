"""Tool calls written as text, as the aggregator asks for them: the registry of `dragoman.textcalls` under this package's names."""

from dragoman.textcalls.choosing import PATTERNS as TEXT_PATTERNS
from dragoman.textcalls.choosing import register_text_pattern
from dragoman.textcalls.matchers import TextCall, TextMatcher
from dragoman.textcalls.registry import PatternRegistry as TextPatterns

__all__ = ("TEXT_PATTERNS", "TextCall", "TextMatcher", "TextPatterns", "register_text_pattern")
