"""The SQL statements of the PostgreSQL store. Values are always parameters; the texts are constants.

The statements are composed once, as bytes: psycopg caches bytes, and would compose other kinds again each time.
"""

from typing import LiteralString

from psycopg import sql

from dragoman.store.engine import COLUMNS, CONVERSATION_COLUMNS

WRITTEN = (*COLUMNS, "request", "answer", "body", "stream")
"""The columns of the table, in the order they are written."""

_TYPES: dict[str, LiteralString] = {
    "request": "bytea",
    "answer": "bytea",
    "body": "bytea",
    "stream": "bytea",
    "created": "float8",
    "expires": "float8",
    "lease": "float8",
    "claimed_until": "float8",
    "inherits": "boolean",
    "claims": "boolean",
    "size": "int8",
    "position": "int8",
    "count": "int8",
    "held_until": "float8",
}
_NAMES = sql.SQL(", ").join([sql.Identifier("r", name) for name in COLUMNS])
_TABLES = (
    sql.Identifier("dragoman_responses"),
    sql.Identifier("dragoman_seals"),
    sql.Identifier("dragoman_conversations"),
)


_CONVERSATION_NAMES = sql.SQL(", ").join(
    [sql.Identifier("c", name) for name in CONVERSATION_COLUMNS]
)


def _statement(text: LiteralString) -> bytes:
    """`{row}` stands for the columns of a row, `{conversation}` for those of a conversation."""
    return sql.SQL(text).format(row=_NAMES, conversation=_CONVERSATION_NAMES).as_bytes()


def _for_each_table(text: LiteralString) -> list[bytes]:
    """The statement for responses, for seals, and for conversations."""
    return [sql.SQL(text).format(table=table).as_bytes() for table in _TABLES]


def _value(name: str) -> sql.Composable:
    """Return a parameter with its type: without a type, PostgreSQL would take a null for text."""
    kind = _TYPES.get(name, "text")
    place = sql.Placeholder(name, "b" if kind == "bytea" else "s")
    return sql.SQL("{}::{}").format(place, sql.SQL(kind))


# Statements are planned when the tables are empty, and the plans stay until the tables are analyzed. So the planner gets no
# choice: `+ 0` keeps it from using the index on `expires` for rows that are known by id, and `OFFSET 0` makes it follow a
# conversation from row to row instead of searching all rows of the owner.
_LIVE: LiteralString = "r.owner = %(owner)s AND r.id = %(id)s AND r.expires + 0 > %(now)s"
SELECT = _statement("SELECT {row} FROM dragoman_responses r WHERE " + _LIVE)
SELECT_CONTENT = _statement("SELECT {row}, r.body FROM dragoman_responses r WHERE " + _LIVE)
SELECT_STREAM = _statement(
    "SELECT {row}, r.body, r.stream FROM dragoman_responses r WHERE " + _LIVE
)
# If the answer is empty, it is read from the body.
_SHARE: LiteralString = (
    "r.request, r.answer, CASE WHEN octet_length(r.answer) = 0 THEN r.body ELSE '' END AS body"
)
LOCK = _statement("SELECT {row} FROM dragoman_responses r WHERE " + _LIVE + " FOR UPDATE")
CHAIN = _statement(
    """
    WITH RECURSIVE up AS (
        SELECT r.*, 1 AS depth,
            octet_length(r.request) + coalesce(octet_length(r.answer), 0) + coalesce(octet_length(r.body), 0)::int8 AS weight
        FROM (SELECT {row}, """
    + _SHARE
    + """ FROM dragoman_responses r WHERE """
    + _LIVE
    + """) r
        UNION ALL
        SELECT r.*, up.depth + 1,
            up.weight + octet_length(r.request) + coalesce(octet_length(r.answer), 0) + coalesce(octet_length(r.body), 0)
        FROM up CROSS JOIN LATERAL (
            SELECT {row}, """
    + _SHARE
    + """ FROM dragoman_responses r
            WHERE r.owner = %(owner)s AND r.id = up.parent AND r.expires + 0 > %(now)s OFFSET 0
        ) r
        WHERE up.depth < %(depth)s AND up.weight <= %(most)s
    )
    SELECT {row}, r.request, r.answer, r.body FROM up r ORDER BY depth
    """
)
_LIFE = sql.SQL(
    """
    CASE WHEN above.expires IS NULL THEN %(expires)s WHEN above.expires >= %(expires)s THEN above.expires
        ELSE %(later)s END
    """
)
_WRITTEN = sql.SQL(", ").join(map(sql.Identifier, WRITTEN))
# If the parent lives long enough, the new row takes its expiry; else the expiry of all ancestors is extended with the new row's.
INSERT = (
    sql.SQL(
        """
    WITH RECURSIVE above AS (
        SELECT expires FROM dragoman_responses
        WHERE owner = %(owner)s AND id = %(parent)s AND expires + 0 > %(now)s
    ), stale AS (
        SELECT ctid AS place, parent FROM dragoman_responses
        WHERE owner = %(owner)s AND id = %(parent)s AND expires + 0 > %(now)s AND expires + 0 < %(expires)s
        UNION
        SELECT r.place, r.parent FROM stale CROSS JOIN LATERAL (
            SELECT r.ctid AS place, r.parent FROM dragoman_responses r
            WHERE r.owner = %(owner)s AND r.id = stale.parent AND r.expires + 0 < %(later)s OFFSET 0
        ) r
    ), renewed AS (
        UPDATE dragoman_responses r SET expires = %(later)s
        WHERE r.ctid = ANY (ARRAY(SELECT place FROM stale)) AND r.expires + 0 < %(later)s
    )
    INSERT INTO dragoman_responses ({names})
    SELECT {values} FROM (SELECT (SELECT expires FROM above) AS expires) above
    ON CONFLICT (owner, id) DO NOTHING RETURNING 1
    """
    )
    .format(
        names=_WRITTEN,
        values=sql.SQL(", ").join(
            [_LIFE if name == "expires" else _value(name) for name in WRITTEN]
        ),
    )
    .as_bytes()
)
INSERT_FIRST = (
    sql.SQL(
        """
    INSERT INTO dragoman_responses ({names}) VALUES ({values})
    ON CONFLICT (owner, id) DO NOTHING RETURNING 1
    """
    )
    .format(names=_WRITTEN, values=sql.SQL(", ").join(map(_value, WRITTEN)))
    .as_bytes()
)
"""`INSERT` for a response without a parent."""
FINISH = """
    WITH ended AS (
        UPDATE dragoman_responses SET status = %(status)s, open_calls = %(open_calls)s, upstream = %(upstream)s,
            family = %(family)s, answer = '', body = %(body)b, stream = %(stream)b,
            size = octet_length(request) + %(size)s
        WHERE owner = %(owner)s AND id = %(id)s AND expires + 0 > %(now)s AND status = 'in_progress'
            AND (claims OR conversation IS NOT NULL) = %(has_others)s AND (lease > %(now)s OR NOT %(needs_lease)s)
        RETURNING 1
    ), gone AS (
        DELETE FROM dragoman_pieces WHERE owner = %(owner)s AND id = %(id)s AND EXISTS (SELECT FROM ended)
    )
    SELECT 1 FROM ended
"""
APPEND = """
    INSERT INTO dragoman_pieces (owner, id, place, until, data)
    VALUES (%(owner)s, %(id)s, %(place)s, %(until)s, %(data)b)
    ON CONFLICT (owner, id, place) DO UPDATE SET until = EXCLUDED.until, data = EXCLUDED.data
"""
PIECE_SIZE = """
    SELECT octet_length(data) FROM dragoman_pieces WHERE owner = %(owner)s AND id = %(id)s AND place = %(place)s
"""
GROW = """
    UPDATE dragoman_responses SET size = size + %(grown)s WHERE owner = %(owner)s AND id = %(id)s
"""
SET_BODY = """
    UPDATE dragoman_responses SET size = size + octet_length(%(body)b::bytea) - octet_length(body), body = %(body)b
    WHERE owner = %(owner)s AND id = %(id)s
"""
PIECES = """
    SELECT place, until, data FROM dragoman_pieces
    WHERE owner = %(owner)s AND id = %(id)s AND until > %(start)s ORDER BY place
"""
"""`has_others`: the end of the response changes other rows too."""
CLAIM = """
    UPDATE dragoman_responses SET claimed_by = %(by)s, claimed_until = %(until)s
    WHERE owner = %(owner)s AND id = %(id)s
"""
SETTLE = """
    UPDATE dragoman_responses SET claimed_until = NULL
    WHERE owner = %(owner)s AND id = %(id)s AND claimed_by = %(by)s RETURNING 1
"""
CANCEL = (
    "UPDATE dragoman_responses SET status = 'cancelled' WHERE owner = %(owner)s AND id = %(id)s"
)
DELETE = "DELETE FROM dragoman_responses WHERE owner = %(owner)s AND id = %(id)s RETURNING expires + 0 > %(now)s"
DELETE_EXPIRED = "DELETE FROM dragoman_responses WHERE owner = %(owner)s AND id = %(id)s AND expires + 0 <= %(now)s"
RELEASE = """
    UPDATE dragoman_responses SET claimed_by = NULL, claimed_until = NULL
    WHERE owner = %(owner)s AND id = %(id)s AND claimed_by = %(by)s AND claimed_until IS NOT NULL
"""
RENEW = """
    WITH running AS (SELECT * FROM unnest(%(owners)s::text[], %(ids)s::text[]) AS k (owner, id)),
    renewed AS (
        UPDATE dragoman_responses r SET lease = %(until)s FROM running k
        WHERE r.owner = k.owner AND r.id = k.id AND r.expires + 0 > %(now)s AND r.status = 'in_progress'
            AND r.lease > %(now)s
        RETURNING r.owner, r.id, r.parent, r.claims
    ), claims AS (
        UPDATE dragoman_responses p SET claimed_until = %(until)s FROM renewed c
        WHERE c.claims AND p.owner = c.owner AND p.id = c.parent AND p.claimed_by = c.id
    )
    SELECT k.owner, k.id FROM running k WHERE NOT EXISTS (SELECT FROM renewed c WHERE c.owner = k.owner AND c.id = k.id)
"""
LOST = """
    SELECT k.owner, k.id FROM unnest(%(owners)s::text[], %(ids)s::text[]) AS k (owner, id)
    WHERE NOT EXISTS (
        SELECT FROM dragoman_responses r
        WHERE r.owner = k.owner AND r.id = k.id AND r.expires + 0 > %(now)s AND r.status = 'in_progress'
            AND r.lease > %(now)s OFFSET 0
    )
"""
PUT_SEALS = """
    INSERT INTO dragoman_seals (owner, family, call_id, expires, size, data)
    SELECT %(owner)s, %(family)s, k.call_id, %(expires)s, octet_length(k.data), k.data
    FROM unnest(%(names)s::text[], %(values)b::bytea[]) AS k (call_id, data)
    ON CONFLICT (owner, family, call_id)
        DO UPDATE SET expires = EXCLUDED.expires, size = EXCLUDED.size, data = EXCLUDED.data
"""
GET_SEALS = """
    SELECT call_id, data FROM dragoman_seals
    WHERE owner = %(owner)s AND family = %(family)s AND call_id = ANY(%(names)s) AND expires + 0 > %(now)s
"""
NEW_KEY = """
    INSERT INTO dragoman_key_usage (name, state) VALUES (%(name)s, '') ON CONFLICT (name) DO NOTHING
"""
LOCK_KEY = "SELECT state FROM dragoman_key_usage WHERE name = %(name)s FOR UPDATE"
CHANGE_KEY = "UPDATE dragoman_key_usage SET state = %(state)b WHERE name = %(name)s"
KEY_STATES = "SELECT name, state FROM dragoman_key_usage WHERE name = ANY(%(names)s)"
FILES = """
    SELECT pg_total_relation_size('dragoman_responses') + pg_total_relation_size('dragoman_seals')
        + pg_total_relation_size('dragoman_pieces')
        + pg_total_relation_size('dragoman_conversations') + pg_total_relation_size('dragoman_conversation_items')
"""
OLDEST = """
    SELECT expires, size FROM (
        (SELECT expires, size FROM dragoman_responses WHERE expires <= %(until)s ORDER BY expires LIMIT %(limit)s)
        UNION ALL
        (SELECT expires, size FROM dragoman_seals WHERE expires <= %(until)s ORDER BY expires LIMIT %(limit)s)
        UNION ALL
        (SELECT expires, size FROM dragoman_conversations WHERE expires <= %(until)s ORDER BY expires LIMIT %(limit)s)
    ) s ORDER BY expires LIMIT %(limit)s
"""
# Nodes that sweep at the same time take different rows, and no node waits for a locked row.
SWEEP = _for_each_table(
    """
    WITH gone AS (
        DELETE FROM {table} WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM {table} WHERE expires <= %(until)s ORDER BY expires FOR UPDATE SKIP LOCKED
        )) RETURNING size
    )
    SELECT count(*), coalesce(sum(size), 0)::int8 FROM gone
    """
)
STATS = _for_each_table("SELECT count(*), coalesce(sum(size), 0)::int8 FROM {table}")


_OPEN: LiteralString = "c.owner = %(owner)s AND c.id = %(id)s AND c.expires + 0 > %(now)s"
CONVERSATION = _statement("SELECT {conversation} FROM dragoman_conversations c WHERE " + _OPEN)
LOCK_CONVERSATION = _statement(
    "SELECT {conversation} FROM dragoman_conversations c WHERE " + _OPEN + " FOR UPDATE"
)
DELETE_EXPIRED_CONVERSATION = """
    DELETE FROM dragoman_conversations WHERE owner = %(owner)s AND id = %(id)s AND expires + 0 <= %(now)s
"""
INSERT_CONVERSATION = (
    sql.SQL(
        """
    INSERT INTO dragoman_conversations ({names}) VALUES ({values}) ON CONFLICT (owner, id) DO NOTHING RETURNING 1
    """
    )
    .format(
        names=sql.SQL(", ").join(map(sql.Identifier, CONVERSATION_COLUMNS)),
        values=sql.SQL(", ").join(map(_value, CONVERSATION_COLUMNS)),
    )
    .as_bytes()
)
UPDATE_CONVERSATION = _statement(
    """
    UPDATE dragoman_conversations c SET expires = greatest(c.expires, %(expires)s),
        metadata = coalesce(%(metadata)s::text, c.metadata),
        size = c.size + coalesce(length(%(metadata)s::text) - length(c.metadata), 0)
    WHERE """
    + _OPEN
    + """ RETURNING {conversation}
    """
)
HOLD = _statement(
    """
    UPDATE dragoman_conversations c SET held_by = %(by)s, held_until = %(until)s,
        expires = greatest(c.expires, %(expires)s)
    WHERE """
    + _OPEN
    + """ AND (c.held_by IS NULL OR c.held_by = %(by)s OR c.held_until <= %(now)s) RETURNING {conversation}
    """
)
RELEASE_HOLD = """
    UPDATE dragoman_conversations SET held_by = NULL, held_until = 0
    WHERE owner = %(owner)s AND id = %(id)s AND held_by = %(by)s
"""
EXTEND_CONVERSATION = """
    UPDATE dragoman_conversations SET expires = %(expires)s, position = %(position)s, count = %(count)s,
        size = %(size)s, held_by = NULL, held_until = 0
    WHERE owner = %(owner)s AND id = %(id)s
"""
DELETE_CONVERSATION = """
    DELETE FROM dragoman_conversations WHERE owner = %(owner)s AND id = %(id)s RETURNING expires + 0 > %(now)s
"""
ADD_ITEMS = """
    INSERT INTO dragoman_conversation_items (owner, conversation, position, id, data)
    SELECT %(owner)s, %(id)s, %(position)s + k.place - 1, k.id, k.data
    FROM unnest(%(ids)s::text[], %(values)b::bytea[]) WITH ORDINALITY AS k (id, data, place)
"""
TAKEN = """
    SELECT i.id FROM unnest(%(ids)s::text[]) AS k (id) JOIN LATERAL (
        SELECT i.id FROM dragoman_conversation_items i
        WHERE i.owner = %(owner)s AND i.id = k.id AND i.conversation = %(id)s OFFSET 0
    ) i ON true
"""
ITEM = """
    SELECT id, data, position FROM dragoman_conversation_items
    WHERE owner = %(owner)s AND id = %(item)s AND conversation = %(id)s
"""
ITEMS_BEFORE = """
    SELECT id, data FROM dragoman_conversation_items
    WHERE owner = %(owner)s AND conversation = %(id)s AND position < %(position)s ORDER BY position LIMIT %(limit)s
"""
ITEMS_ASCENDING = """
    SELECT id, data FROM dragoman_conversation_items
    WHERE owner = %(owner)s AND conversation = %(id)s AND position > %(position)s ORDER BY position LIMIT %(limit)s
"""
ITEMS_DESCENDING = """
    SELECT id, data FROM dragoman_conversation_items
    WHERE owner = %(owner)s AND conversation = %(id)s AND position < %(position)s ORDER BY position DESC LIMIT %(limit)s
"""
DELETE_ITEM = """
    DELETE FROM dragoman_conversation_items
    WHERE owner = %(owner)s AND id = %(item)s AND conversation = %(id)s RETURNING octet_length(data)
"""
SHRINK_CONVERSATION = _statement(
    """
    UPDATE dragoman_conversations c SET count = c.count - 1, size = c.size - %(less)s
    WHERE c.owner = %(owner)s AND c.id = %(id)s RETURNING {conversation}
    """
)
FIND_ITEMS = """
    SELECT DISTINCT ON (i.id) i.id, i.data FROM dragoman_conversation_items i JOIN dragoman_conversations c
        ON c.owner = i.owner AND c.id = i.conversation AND c.expires + 0 > %(now)s
    WHERE i.owner = %(owner)s AND i.id = ANY(%(ids)s)
"""
