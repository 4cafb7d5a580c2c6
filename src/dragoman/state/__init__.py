"""Stored responses: what a request continues, what is stored of an answer, and the endpoints that read it back.

managed_store.py   the store of a gateway: opened, maintained, watched for problems
continuation.py    what a request continues, put before what it says
conversation.py    a conversation put together again from what is stored of it
keeper.py          one answer on its way into the store
escrow.py          the seals that a client cannot carry
endpoints.py       stored responses over HTTP
"""
