"""Stored responses: continuing them, storing answers, and the endpoints that read stored responses back.

managed_store.py   the store of a gateway: opens it, maintains it, reports its problems
continuation.py    finds the conversation that a request continues and prepends it
conversation.py    rebuilds a conversation from the stored responses
keeper.py          stores one answer while it is sent
conversations.py   the endpoints of `/v1/conversations`; held_conversation.py: the lock of a conversation
escrow.py          stores the seals that a client cannot send back
endpoints.py       stored responses over HTTP
"""
