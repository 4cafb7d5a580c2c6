"""Stored responses: what a request continues, what is kept of an answer, and the endpoints that read it back.

    listing.py     a conversation as pages of items
    replaying.py   a stored stream from some event on

These are pure; `keeping.py` and `endpoints.py` ask the store.
"""
