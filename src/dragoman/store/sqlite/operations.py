"""The operations of the SQLite store, inside transactions: functions over a connection.

Each raises before it writes, or succeeds (see `thread`). Statements are constant texts, so that the connection
prepares each of them once.
"""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TypeVar, cast

from msgspec import Struct, structs

from dragoman.errors import StoreError
from dragoman.store.contract import MAX_CHAIN_BYTES, ClaimResult, Key
from dragoman.store.engine import (
    COLUMNS,
    STEP,
    ExpiryLimit,
    KeyUpdate,
    Row,
    RowEnd,
    StoredContent,
    StreamPiece,
    check_running,
    claim_result,
    claim_taken,
    exists,
    gives_back,
    head_of,
    is_over,
    limit_for_excess,
    missing,
)
from dragoman.store.records import Status, StoreStats, Swept
from dragoman.store.sqlite import conversations
from dragoman.store.sqlite.schema import check_version
from dragoman.store.sqlite.thread import BatchConflict

T = TypeVar("T")

MAX_TOGETHER = 32
"""Rows of one statement: 19 values each, and every SQLite accepts 999. There is one statement for each number of rows."""

# Free pages that one sweep returns to the file system: 4 MiB.
_VACUUM_PAGES = 1024

_HEAD = ", ".join(f"r.{name}" for name in COLUMNS)
_WIDTH = len(COLUMNS)
_LIVE = "r.owner = ? AND r.id = ? AND r.expires > ?"
_SELECT = f"SELECT {_HEAD}, r.n FROM responses r WHERE {_LIVE}"
_SELECT_CONTENT = (
    f"SELECT {_HEAD}, a.body FROM responses r JOIN answers a ON a.n = r.n WHERE {_LIVE}"
)
_SELECT_STREAM = (
    f"SELECT {_HEAD}, a.body, a.stream FROM responses r JOIN answers a ON a.n = r.n WHERE {_LIVE}"
)
_UPDATE = """
    UPDATE responses SET status = ?, open_calls = ?, upstream = ?, family = ?,
        size = (SELECT length(request) FROM requests q WHERE q.n = responses.n) + ?
    WHERE n = ?
"""
_KEEP_ANCESTORS = """
    WITH RECURSIVE up (n, parent) AS (
        SELECT n, parent FROM responses WHERE owner = :owner AND id = :parent
        UNION SELECT r.n, r.parent FROM up JOIN responses r ON r.owner = :owner AND r.id = up.parent
    )
    UPDATE responses SET expires = :expires WHERE n IN (SELECT n FROM up) AND expires < :expires
"""
# `length` of a blob reads only the head of its row. The weight so far is checked before the next row is added.
_CHAIN = f"""
    WITH RECURSIVE up (n, parent, depth, weight) AS (
        SELECT r.n, r.parent, 1, length(q.request) + coalesce(nullif(length(a.answer), 0), length(a.body))
        FROM responses r JOIN requests q ON q.n = r.n JOIN answers a ON a.n = r.n
        WHERE r.owner = :owner AND r.id = :id AND r.expires > :now
        UNION ALL
        SELECT r.n, r.parent, up.depth + 1,
            up.weight + length(q.request) + coalesce(nullif(length(a.answer), 0), length(a.body))
        FROM up JOIN responses r ON r.owner = :owner AND r.id = up.parent
            JOIN requests q ON q.n = r.n JOIN answers a ON a.n = r.n
        WHERE up.depth < :depth AND up.weight <= :most AND r.expires > :now
    )
    SELECT {_HEAD}, q.request, a.answer, CASE WHEN length(a.answer) = 0 THEN a.body ELSE x'' END
    FROM up JOIN responses r ON r.n = up.n JOIN requests q ON q.n = up.n JOIN answers a ON a.n = up.n
    ORDER BY up.depth
"""
_EXPIRING = ("responses", "seals", "conversations")
"""The tables whose rows expire."""
_COUNT = "SELECT count(*), coalesce(sum(size), 0) FROM"
_SIZES = """
    SELECT expires, size FROM responses WHERE expires {0} UNION ALL SELECT expires, size FROM seals WHERE expires {0}
    UNION ALL SELECT expires, size FROM conversations WHERE expires {0}
    ORDER BY expires LIMIT ?
"""


class NewRow(Struct, frozen=True, gc=False):
    """A row to be inserted. `ttl`: how long it lives from `now` on."""

    content: StoredContent
    now: float
    ttl: float


def insert_all(db: sqlite3.Connection, news: Sequence[NewRow]) -> list[StoreError | None]:
    """Insert all rows in few statements. Returns the error of each row, or None.

    Raises:
        BatchConflict: there are several rows, and some have ids that are taken.
    """
    plain = [new for new in news if not _is_alone(new)]
    try:
        for first in range(0, len(plain), MAX_TOGETHER):
            _insert_together(db, plain[first : first + MAX_TOGETHER])
    except BatchConflict:
        if len(news) > 1:
            raise
        return [_insert_alone(db, news[0])]
    return [_insert_alone(db, new) if _is_alone(new) else None for new in news]


def _is_alone(new: NewRow) -> bool:
    """Whether inserting the row changes others too: it settles a claim, or adds to a conversation."""
    row_ = new.content.row
    return row_.claims or row_.conversation is not None


def _insert_together(db: sqlite3.Connection, news: Sequence[NewRow]) -> None:
    """Raises BatchConflict: some of the rows were not inserted."""
    lives = [_expiry(db, new) for new in news]
    values: list[object] = []
    for new, (expires, _) in zip(news, lives, strict=True):
        values += _values(new.content.row, expires)
    count = len(news)
    done = db.execute(_insert_into("responses", _WIDTH, count), values)
    if done.rowcount != count:
        raise BatchConflict
    # The row numbers of one statement are consecutive.
    first = cast("int", done.lastrowid) - count + 1
    requests: list[object] = []
    answers: list[object] = []
    for number, new in enumerate(news, first):
        made = new.content
        requests += (number, made.request)
        answers += (number, made.answer, made.body, made.stream)
    db.execute(_insert_into("requests", 2, count), requests)
    db.execute(_insert_into("answers", 4, count), answers)
    for new, (expires, is_later) in zip(news, lives, strict=True):
        if is_later:
            child = new.content.row
            place = {"owner": child.owner, "parent": child.parent, "expires": expires}
            db.execute(_KEEP_ANCESTORS, place)


def _expiry(db: sqlite3.Connection, new: NewRow) -> tuple[float, bool]:
    """Return when a new row expires, and whether that is later than its ancestors, which must live as long."""
    child, expires = new.content.row, new.now + new.ttl
    above = None if child.parent is None else row(db, (child.owner, child.parent), new.now)
    if above is None:
        return expires, False
    if above.expires >= expires:
        return above.expires, False
    return expires + new.ttl * STEP, True


@cache
def _insert_into(table: str, width: int, count: int) -> str:
    row_ = f"({', '.join('?' * width)})"
    names = f" ({', '.join(COLUMNS)})" if table == "responses" else ""
    conflict = " ON CONFLICT (owner, id) DO NOTHING" if table == "responses" else ""
    return f"INSERT INTO {table}{names} VALUES {', '.join([row_] * count)}{conflict}"


def _values(new: Row, expires: float) -> list[object]:
    values: list[object] = [*structs.astuple(new)]
    values[_EXPIRES] = expires
    return values


def _insert_alone(db: sqlite3.Connection, new: NewRow) -> StoreError | None:
    try:
        insert(db, new)
    except StoreError as error:
        return error
    return None


def insert(db: sqlite3.Connection, entry: NewRow) -> None:
    new, now = entry.content.row, entry.now
    old = _by_id(db, (new.owner, new.id))
    if old is not None and old[0].expires > now:
        raise exists(new.id)
    if new.claims:
        above = row(db, (new.owner, new.parent or ""), now)
        if above is None or above.claimed_by != new.id:
            raise claim_taken(new.id, new.parent)
    has_ended = new.status != "in_progress"
    if has_ended and new.conversation is not None:
        conversations.check_end(db, new, new.status, entry.content.items, now)
    if old is not None:
        _drop(db, old[1])
    _insert_together(db, [entry])
    if has_ended and new.claims:
        _settle(db, new, new.status)
    if has_ended and new.conversation is not None:
        conversations.end(db, new, new.status, entry.content.items, now, entry.ttl)


def append(
    db: sqlite3.Connection, key: Key, piece: StreamPiece, body: bytes | None, now: float
) -> None:
    found, number = _find(db, key, now)
    check_running(found)
    place = (number, piece.place)
    before = db.execute("SELECT length(data) FROM pieces WHERE n = ? AND place = ?", place)
    grown = len(piece.data) - cast("int", (before.fetchone() or (0,))[0])
    if body is not None:
        stored = db.execute("SELECT length(body) FROM answers WHERE n = ?", (number,)).fetchone()
        grown += len(body) - cast("int", stored[0])
        db.execute("UPDATE answers SET body = ? WHERE n = ?", (body, number))
    values = (*place, piece.until, piece.data)
    db.execute("INSERT OR REPLACE INTO pieces VALUES (?, ?, ?, ?)", values)
    db.execute("UPDATE responses SET size = size + ? WHERE n = ?", (grown, number))


def pieces(
    db: sqlite3.Connection, key: Key, start: int, now: float
) -> tuple[Row, list[StreamPiece]] | None:
    found = db.execute(_SELECT, (*key, now)).fetchone()
    if found is None:
        return None
    select = "SELECT place, until, data FROM pieces WHERE n = ? AND until > ? ORDER BY place"
    rows = db.execute(select, (found[_WIDTH], start)).fetchall()
    return Row(*found[:_WIDTH]), [StreamPiece(*each) for each in rows]


def finish(db: sqlite3.Connection, key: Key, over: RowEnd, now: float, ttl: float) -> Status:
    found, number = _find(db, key, now)
    if is_over(found, over, now):
        return "cancelled"
    if found.claims:
        _check_claim(db, found, over)
    if found.conversation is not None:
        conversations.check_end(db, found, over.status, over.items, now)
        conversations.end(db, found, over.status, over.items, now, ttl)
    if found.claims:
        _settle(db, found, over.status)
    values = (over.status, over.open_calls, over.upstream, over.family, over.size, number)
    db.execute(_UPDATE, values)
    db.execute(
        "UPDATE answers SET answer = x'', body = ?, stream = ? WHERE n = ?",
        (over.body, over.stream, number),
    )
    db.execute("DELETE FROM pieces WHERE n = ?", (number,))
    return over.status


def renew(
    db: sqlite3.Connection, running: Collection[Key], until: float, now: float
) -> frozenset[Key]:
    lost: set[Key] = set()
    for key in running:
        changed = db.execute(
            "UPDATE responses SET lease = ? WHERE owner = ? AND id = ? AND expires > ? AND status = 'in_progress'"
            " AND lease > ?",
            (until, *key, now, now),
        )
        if changed.rowcount == 0:
            lost.add(key)
            continue
        db.execute(
            "UPDATE responses SET claimed_until = ? WHERE owner = ? AND claimed_by = ? AND id ="
            " (SELECT parent FROM responses WHERE owner = ? AND id = ? AND claims)",
            (until, *key, *key),
        )
    return frozenset(lost)


def lost(db: sqlite3.Connection, running: Collection[Key], now: float) -> frozenset[Key]:
    select = f"SELECT 1 FROM responses r WHERE {_LIVE} AND r.status = 'in_progress' AND r.lease > ?"
    return frozenset(
        [key for key in running if db.execute(select, (*key, now, now)).fetchone() is None]
    )


def row(db: sqlite3.Connection, key: Key, now: float) -> Row | None:
    found = db.execute(_SELECT, (*key, now)).fetchone()
    return None if found is None else Row(*found[:_WIDTH])


def content(db: sqlite3.Connection, key: Key, now: float, *, stream: bool) -> StoredContent | None:
    found = db.execute(_SELECT_STREAM if stream else _SELECT_CONTENT, (*key, now)).fetchone()
    if found is None:
        return None
    sent = found[_WIDTH + 1] if stream else None
    return StoredContent(Row(*found[:_WIDTH]), body=found[_WIDTH], stream=sent)


def chain(db: sqlite3.Connection, key: Key, now: float, depth: int) -> list[StoredContent]:
    values = {"owner": key[0], "id": key[1], "now": now, "depth": depth, "most": MAX_CHAIN_BYTES}
    return [
        StoredContent(Row(*found[:_WIDTH]), *found[_WIDTH:]) for found in db.execute(_CHAIN, values)
    ]


def claim(db: sqlite3.Connection, key: Key, by: str, until: float, now: float) -> ClaimResult:
    found, number = _find(db, key, now)
    result = claim_result(head_of(found, now), by)
    if result == "won":
        db.execute(
            "UPDATE responses SET claimed_by = ?, claimed_until = ? WHERE n = ?",
            (by, until, number),
        )
    return result


def release(db: sqlite3.Connection, key: Key, by: str) -> None:
    db.execute(
        "UPDATE responses SET claimed_by = NULL, claimed_until = NULL"
        " WHERE owner = ? AND id = ? AND claimed_by = ? AND claimed_until IS NOT NULL",
        (*key, by),
    )


def cancel(db: sqlite3.Connection, key: Key, now: float) -> Status:
    found, number = _find(db, key, now)
    if found.status != "in_progress":
        return found.status
    db.execute("UPDATE responses SET status = 'cancelled' WHERE n = ?", (number,))
    if found.claims:
        release(db, (found.owner, found.parent or ""), found.id)
    return "cancelled"


def delete(db: sqlite3.Connection, key: Key, now: float) -> bool:
    found = _by_id(db, key)
    if found is None:
        return False
    _drop(db, found[1])
    return found[0].expires > now


def put_seals(
    db: sqlite3.Connection, owner: str, family: str, sealed: Mapping[str, bytes], expires: float
) -> None:
    rows = [(owner, family, call_id, expires, len(data), data) for call_id, data in sealed.items()]
    db.executemany("INSERT OR REPLACE INTO seals VALUES (?, ?, ?, ?, ?, ?)", rows)


def get_seals(
    db: sqlite3.Connection, owner: str, family: str, call_ids: Collection[str], now: float
) -> dict[str, bytes]:
    # One query for each call: the statement is prepared once, and each query is one descent of a tree in memory.
    select = "SELECT data FROM seals WHERE owner = ? AND family = ? AND call_id = ? AND expires > ?"
    found = [(name, db.execute(select, (owner, family, name, now)).fetchone()) for name in call_ids]
    return {name: cast("bytes", data[0]) for name, data in found if data is not None}


def change_key(db: sqlite3.Connection, name: str, change: KeyUpdate[T]) -> T:
    found = db.execute("SELECT state FROM key_usage WHERE name = ?", (name,)).fetchone()
    before = None if found is None else cast("bytes", found[0])
    after, result = change(before)
    if after != before:
        db.execute("INSERT OR REPLACE INTO key_usage VALUES (?, ?)", (name, after))
    return result


def key_states(db: sqlite3.Connection, names: Collection[str]) -> dict[str, bytes]:
    select = "SELECT state FROM key_usage WHERE name = ?"
    found = [(name, db.execute(select, (name,)).fetchone()) for name in names]
    return {name: cast("bytes", state[0]) for name, state in found if state is not None}


def mark(db: sqlite3.Connection, now: float, limit: int, most: int) -> ExpiryLimit | None:
    """Return how far the next sweep goes; None if there is nothing to remove."""
    old = db.execute(_SIZES.format("<= ?"), (now, now, now, limit + 1)).fetchall()
    if old:
        return ExpiryLimit(cast("float", old[:limit][-1][0]), more=len(old) > limit)
    # The pages in use take more than the content, and are known at once; summing the sizes reads an entry for every row.
    excess = -1 if pages_in_use(db) <= most else stats(db).size - most
    if excess <= 0:
        return None
    oldest = db.execute(_SIZES.format(">= ?"), (0.0, 0.0, 0.0, limit)).fetchall()
    return limit_for_excess(oldest, excess)


def pages_in_use(db: sqlite3.Connection) -> int:
    """Return the pages in use, in bytes."""
    pages, free, size = [
        cast("int", db.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    ]
    return (pages - free) * size


def sweep(db: sqlite3.Connection, mark: ExpiryLimit) -> Swept:
    numbers = db.execute(
        "SELECT n, size FROM responses WHERE expires <= ?", (mark.until,)
    ).fetchall()
    for number, _ in numbers:
        _drop(db, cast("int", number))
    sizes = db.execute(
        "DELETE FROM seals WHERE expires <= ? RETURNING size", (mark.until,)
    ).fetchall()
    others = db.execute(
        "SELECT n, size FROM conversations WHERE expires <= ?", (mark.until,)
    ).fetchall()
    for number, _ in others:
        conversations.drop(db, cast("int", number))
    db.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
    return Swept(
        responses=len(numbers),
        seals=len(sizes),
        conversations=len(others),
        size=sum(cast("int", size) for _, size in (*numbers, *others))
        + sum(cast("int", size) for (size,) in sizes),
        more=mark.more,
    )


def stats(db: sqlite3.Connection) -> StoreStats:
    found = [db.execute(f"{_COUNT} {table}").fetchone() for table in _EXPIRING]
    counts, sizes = zip(*cast("list[tuple[int, int]]", found), strict=True)
    return StoreStats(**dict(zip(_EXPIRING, counts, strict=True)), size=sum(sizes))


def ping(db: sqlite3.Connection) -> None:
    """Raises StoreDamaged: a later version of this program has changed the tables meanwhile."""
    check_version(db)
    db.execute("SELECT 1 FROM responses LIMIT 1").fetchone()


_EXPIRES = COLUMNS.index("expires")


def _by_id(db: sqlite3.Connection, key: Key) -> tuple[Row, int] | None:
    """Return a row, expired or not, and its number."""
    found = db.execute(_SELECT, (*key, float("-inf"))).fetchone()
    return None if found is None else (Row(*found[:_WIDTH]), found[_WIDTH])


def _find(db: sqlite3.Connection, key: Key, now: float) -> tuple[Row, int]:
    found = _by_id(db, key)
    if found is None or found[0].expires <= now:
        raise missing(key[1])
    return found


def _drop(db: sqlite3.Connection, number: int) -> None:
    db.execute("DELETE FROM requests WHERE n = ?", (number,))
    db.execute("DELETE FROM answers WHERE n = ?", (number,))
    db.execute("DELETE FROM pieces WHERE n = ?", (number,))
    db.execute("DELETE FROM responses WHERE n = ?", (number,))


def _check_claim(db: sqlite3.Connection, child: Row, over: RowEnd) -> None:
    """Raises StoreConflict: another response holds the claim, so this one would be a second continuation."""
    above = _by_id(db, (child.owner, child.parent or ""))
    is_held = above is not None and above[0].claimed_by == child.id
    if not is_held and not gives_back(over.status):
        raise claim_taken(child.id, child.parent)


def _settle(db: sqlite3.Connection, child: Row, status: Status) -> None:
    place = (child.owner, child.parent or "")
    if gives_back(status):
        release(db, place, child.id)
        return
    db.execute(
        "UPDATE responses SET claimed_until = NULL WHERE owner = ? AND id = ? AND claimed_by = ?",
        (*place, child.id),
    )
