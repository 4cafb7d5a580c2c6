"""The tables of the PostgreSQL store, version by version.

Content is stored out of line and uncompressed by PostgreSQL (`EXTERNAL`), since the store compresses it. So a row stays
small: changing a claim or a lease does not copy the content and, with room left in each page (`fillfactor`), touches no index.
"""

from typing import LiteralString

from dragoman.errors import StoreDamaged
from dragoman.store.postgres.pool import PostgresPool

MIGRATIONS: tuple[tuple[LiteralString, ...], ...] = (
    (
        """
        CREATE TABLE dragoman_responses (
            id text NOT NULL,
            owner text NOT NULL,
            parent text,
            created float8 NOT NULL,
            expires float8 NOT NULL,
            status text NOT NULL,
            lease float8 NOT NULL,
            door text NOT NULL,
            model text NOT NULL,
            upstream text NOT NULL,
            family text NOT NULL,
            inherits boolean NOT NULL,
            claims boolean NOT NULL,
            open_calls text NOT NULL,
            claimed_by text,
            claimed_until float8,
            size int8 NOT NULL,
            request bytea NOT NULL,
            answer bytea,
            body bytea NOT NULL,
            stream bytea,
            PRIMARY KEY (owner, id)
        ) WITH (fillfactor = 85)
        """,
        """
        ALTER TABLE dragoman_responses
            ALTER COLUMN request SET STORAGE EXTERNAL, ALTER COLUMN answer SET STORAGE EXTERNAL,
            ALTER COLUMN body SET STORAGE EXTERNAL, ALTER COLUMN stream SET STORAGE EXTERNAL
        """,
        "CREATE INDEX dragoman_responses_by_expiry ON dragoman_responses (expires) INCLUDE (size)",
    ),
    (
        """
        CREATE TABLE dragoman_seals (
            owner text NOT NULL,
            family text NOT NULL,
            call_id text NOT NULL,
            expires float8 NOT NULL,
            size int8 NOT NULL,
            data bytea NOT NULL,
            PRIMARY KEY (owner, family, call_id)
        )
        """,
        "ALTER TABLE dragoman_seals ALTER COLUMN data SET STORAGE EXTERNAL",
        "CREATE INDEX dragoman_seals_by_expiry ON dragoman_seals (expires) INCLUDE (size)",
    ),
    (
        # The streams of running responses, piece by piece: the bytes from `place` up to `until`.
        """
        CREATE TABLE dragoman_pieces (
            owner text NOT NULL,
            id text NOT NULL,
            place int8 NOT NULL,
            until int8 NOT NULL,
            data bytea NOT NULL,
            PRIMARY KEY (owner, id, place),
            FOREIGN KEY (owner, id) REFERENCES dragoman_responses ON DELETE CASCADE
        )
        """,
        "ALTER TABLE dragoman_pieces ALTER COLUMN data SET STORAGE EXTERNAL",
    ),
    (
        """
        CREATE TABLE dragoman_conversations (
            id text NOT NULL,
            owner text NOT NULL,
            created float8 NOT NULL,
            expires float8 NOT NULL,
            metadata text NOT NULL,
            position int8 NOT NULL,
            count int8 NOT NULL,
            size int8 NOT NULL,
            held_by text,
            held_until float8 NOT NULL,
            PRIMARY KEY (owner, id)
        ) WITH (fillfactor = 85)
        """,
        "CREATE INDEX dragoman_conversations_by_expiry ON dragoman_conversations (expires) INCLUDE (size)",
        # The items go with their conversation, whoever deletes it.
        """
        CREATE TABLE dragoman_conversation_items (
            owner text NOT NULL,
            conversation text NOT NULL,
            position int8 NOT NULL,
            id text NOT NULL,
            data bytea NOT NULL,
            PRIMARY KEY (owner, conversation, position),
            UNIQUE (owner, id, conversation),
            FOREIGN KEY (owner, conversation) REFERENCES dragoman_conversations (owner, id) ON DELETE CASCADE
        )
        """,
        "ALTER TABLE dragoman_conversation_items ALTER COLUMN data SET STORAGE EXTERNAL",
        "ALTER TABLE dragoman_responses ADD COLUMN conversation text, ADD COLUMN position int8",
    ),
    (
        # What named keys have used: the state of each (`key_usage.KeyState`). A row changes with every request of its key.
        """
        CREATE TABLE dragoman_key_usage (name text PRIMARY KEY, state bytea NOT NULL) WITH (fillfactor = 50)
        """,
    ),
)
"""The statements that migrate each version to the next, starting with an empty database."""

# An advisory lock, so that nodes that start together take turns. Any number that no other program is likely to use.
_LOCK = 0x447261676F6D616E  # "Dragoman"


async def migrate(pool: PostgresPool) -> None:
    """Migrate the database to the newest version, in one transaction.

    Raises:
        StoreDamaged: the database is of a later version. StoreUnavailable
    """
    newest = len(MIGRATIONS)
    async with pool.lend() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS dragoman_schema (version int NOT NULL)"
        )
        found = await (await connection.execute("SELECT version FROM dragoman_schema")).fetchone()
        version = 0 if found is None else int(found[0])
        if version > newest:
            raise StoreDamaged(
                f"expected a store of version {newest} or before, it has version {version}: "
                "a later version of this program wrote it"
            )
        if version == newest:
            return
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                await connection.execute(statement)
        if found is None:
            await connection.execute("INSERT INTO dragoman_schema VALUES (%s)", (newest,))
        else:
            await connection.execute("UPDATE dragoman_schema SET version = %s", (newest,))
