-- What guards the doors. Whatever a caller shows is kept as its hash of 32 bytes
-- only: from what stands here nobody can make a key.

-- A key is never deleted, so that its name can be told for what was done with it.
CREATE TABLE api_key (
  id         INTEGER PRIMARY KEY,
  name       TEXT NOT NULL,
  role       TEXT NOT NULL,
  hash       BLOB NOT NULL,
  made_by    TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,           -- null: never by itself
  revoked_at INTEGER,
  used_at    INTEGER
) STRICT;
CREATE UNIQUE INDEX api_key_hash ON api_key (hash);
CREATE UNIQUE INDEX api_key_name ON api_key (name) WHERE revoked_at IS NULL;

-- kind: 0 session, 1 ticket
CREATE TABLE pass (
  hash   BLOB NOT NULL,
  kind   INTEGER NOT NULL,
  holder BLOB,                  -- the key's hash; null: the machine's own key
  until  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX pass_hash ON pass (hash, kind);
CREATE INDEX pass_holder ON pass (holder) WHERE holder IS NOT NULL;
CREATE INDEX pass_until ON pass (until);

CREATE TABLE link (
  hash      BLOB NOT NULL,
  gate      BLOB NOT NULL,
  digest    BLOB,
  recipient TEXT NOT NULL,
  made_by   TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX link_hash ON link (hash);
CREATE INDEX link_gate ON link (gate);

-- A request that must count once, and its answer; without a status it still runs.
CREATE TABLE reply (
  principal   TEXT NOT NULL,
  key         TEXT NOT NULL,
  body        BLOB NOT NULL,
  until       INTEGER NOT NULL,
  lease_until INTEGER NOT NULL, -- whoever runs it longer is taken for dead
  status      INTEGER,
  location    TEXT,
  answer      BLOB
) STRICT;
CREATE UNIQUE INDEX reply_key ON reply (principal, key);
CREATE INDEX reply_until ON reply (until);
