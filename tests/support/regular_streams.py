"""Streams that a relay passes on as they are: those of the vendors, and some of the corpus."""

from corpus_cases import DIALECTS
from vendor_answers import STREAMS

VENDOR = [(dialect, name) for dialect in DIALECTS for name in STREAMS[dialect]]

# Cases of the corpus that are as their vendor sends them, or deviate in a way that no client minds.
REGULAR = frozenset(
    {
        "chat/calls-in-separate-events",
        "chat/comments",
        "chat/crlf",
        "chat/custom-call-with-null-members",
        "chat/empty-choices-first",
        "chat/large-frame",
        "chat/length-inside-a-call",
        "chat/many-deltas",
        "chat/matched-stop-sequence",
        "chat/overlapping-increments",
        "chat/parallel-calls",
        "chat/pseudo-tool",
        "chat/reasoning-then-call",
        "chat/text-call-usage",
        "chat/thought-signature",
        "messages/error-event",
        "messages/max-tokens-inside-a-call",
        "messages/parallel-calls",
        "messages/server-tool",
        "messages/signed-empty-thinking",
        "messages/split-json",
        "messages/thinking-then-call",
        "messages/zero-arguments",
        "responses/custom-call",
        "responses/empty-delta",
        "responses/namespaced-call",
        "responses/parallel-calls",
        "responses/text-and-call",
    }
)
