"""Stored responses: what a request continues, what is kept of an answer, and the endpoints that read it back.

    holding.py     the store of a gateway: opened, tended, known for its troubles
    recalling.py   what a request continues, put before what it asks
    referring.py   items that a request only refers to, put where they are meant
    planned.py     what that changes in the plan of an attempt
    keeping.py     one answer on its way into the store
    escrow.py      the seals that a client cannot carry
    endpoints.py   stored responses over HTTP
    following.py   one that still runs, told as it comes

    endings.py     an answer, read from what was told of it
    listing.py     a conversation as pages of items
    replaying.py   a stored stream from some event on
    refusing.py    what a client is told if that cannot be

The second group is pure, the first asks the store.
"""
