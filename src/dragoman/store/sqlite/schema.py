"""The tables of the SQLite store, version by version.

Small columns that change have a table of their own, apart from the large content: SQLite rewrites a whole row when one
number in it changes. `PRAGMA user_version` is the version, `application_id` marks the gateway's files.
"""

import sqlite3

from dragoman.errors import StoreDamaged

APPLICATION_ID = 0x44524147  # "DRAG"

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE responses (
            n INTEGER PRIMARY KEY,
            id TEXT NOT NULL,
            owner TEXT NOT NULL,
            parent TEXT,
            created REAL NOT NULL,
            expires REAL NOT NULL,
            status TEXT NOT NULL,
            lease REAL NOT NULL,
            door TEXT NOT NULL,
            model TEXT NOT NULL,
            upstream TEXT NOT NULL,
            family TEXT NOT NULL,
            inherits INTEGER NOT NULL,
            claims INTEGER NOT NULL,
            open_calls TEXT NOT NULL,
            claimed_by TEXT,
            claimed_until REAL,
            size INTEGER NOT NULL,
            UNIQUE (owner, id)
        )
        """,
        "CREATE INDEX responses_by_expiry ON responses (expires, size)",
        "CREATE TABLE requests (n INTEGER PRIMARY KEY, request BLOB NOT NULL)",
        # The columns most often read come first: SQLite reads a long row only up to the column it needs.
        "CREATE TABLE answers (n INTEGER PRIMARY KEY, answer BLOB, body BLOB NOT NULL, stream BLOB)",
    ),
    (
        """
        CREATE TABLE seals (
            owner TEXT NOT NULL,
            family TEXT NOT NULL,
            call_id TEXT NOT NULL,
            expires REAL NOT NULL,
            size INTEGER NOT NULL,
            data BLOB NOT NULL,
            UNIQUE (owner, family, call_id)
        )
        """,
        "CREATE INDEX seals_by_expiry ON seals (expires, size)",
    ),
    (
        # The streams of running responses, piece by piece: the bytes from `place` up to `until`.
        """
        CREATE TABLE pieces (
            n INTEGER NOT NULL,
            place INTEGER NOT NULL,
            until INTEGER NOT NULL,
            data BLOB NOT NULL,
            UNIQUE (n, place)
        )
        """,
    ),
    (
        """
        CREATE TABLE conversations (
            n INTEGER PRIMARY KEY,
            id TEXT NOT NULL,
            owner TEXT NOT NULL,
            created REAL NOT NULL,
            expires REAL NOT NULL,
            metadata TEXT NOT NULL,
            position INTEGER NOT NULL,
            count INTEGER NOT NULL,
            size INTEGER NOT NULL,
            held_by TEXT,
            held_until REAL NOT NULL,
            UNIQUE (owner, id)
        )
        """,
        "CREATE INDEX conversations_by_expiry ON conversations (expires, size)",
        """
        CREATE TABLE conversation_items (
            conversation INTEGER NOT NULL,
            position INTEGER NOT NULL,
            id TEXT NOT NULL,
            data BLOB NOT NULL,
            UNIQUE (conversation, position),
            UNIQUE (id, conversation)
        )
        """,
        "ALTER TABLE responses ADD COLUMN conversation TEXT",
        "ALTER TABLE responses ADD COLUMN position INTEGER",
    ),
    (
        # What named keys have used: the state of each (`key_usage.KeyState`).
        "CREATE TABLE key_usage (name TEXT PRIMARY KEY, state BLOB NOT NULL) WITHOUT ROWID",
    ),
)
"""The statements that migrate each version to the next, starting with an empty file."""

# In one statement: between two, another process may make the tables.
_MARKS = "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_user_version, pragma_application_id"


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate the file to the newest version.

    Raises:
        StoreDamaged: the file is another program's, or of a later version.
    """
    if check_version(connection) == 0:
        return
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # commits or rolls back
        # Another process may have migrated the file meanwhile.
        for statements in MIGRATIONS[len(MIGRATIONS) - check_version(connection) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def check_version(connection: sqlite3.Connection) -> int:
    """Return how many versions the file is behind the newest.

    Raises:
        StoreDamaged: the file is another program's, or of a later version.
    """
    version, application, tables = connection.execute(_MARKS).fetchone()
    newest = len(MIGRATIONS)
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreDamaged(
            "expected an empty file or a store of this program, it belongs to another program"
        )
    if version > newest:
        raise StoreDamaged(
            f"expected a store of version {newest} or before, it has version {version}: "
            "a later version of this program wrote it"
        )
    behind: int = newest - version
    return behind
