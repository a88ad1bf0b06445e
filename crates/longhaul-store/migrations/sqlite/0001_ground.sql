-- The ground of the store. Ids are sixteen bytes, times are microseconds since
-- 1970, spans are milliseconds, money is millionths of a dollar. What has a
-- shape of its own stands as JSON; what is searched for stands in columns.
--
-- WITHOUT ROWID only where rows are narrow: for journal and blob it costs up to
-- three and a half times the bytes.

CREATE TABLE meta (
  name  TEXT NOT NULL PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT;
INSERT INTO meta (name, value) VALUES ('boot', 0);

-- A run as it was submitted. Cold, but for its place in a lane.
CREATE TABLE run (
  id         BLOB NOT NULL PRIMARY KEY,
  root       BLOB NOT NULL,
  parent     BLOB,
  agent      TEXT NOT NULL,
  definition BLOB NOT NULL,
  inbox      TEXT NOT NULL,
  kind       TEXT,
  priority   INTEGER NOT NULL,
  lane       TEXT,
  takes_lane INTEGER NOT NULL,  -- 0: a step, which lives in its root's lane
  lane_seq   INTEGER,           -- its place; null: it is not in its lane
  thread     TEXT,
  resource   TEXT,
  submitter  TEXT,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX run_tree ON run (root, id);
CREATE INDEX run_agent ON run (agent, id);
CREATE INDEX run_lane ON run (lane, id) WHERE lane IS NOT NULL;
CREATE UNIQUE INDEX run_in_lane ON run (lane, lane_seq) WHERE lane_seq IS NOT NULL;

-- A run as it stands: the row that every append changes.
-- state: 0 ready, 1 leased, 2 parked, 3 waits in its lane, 4 paused, 5 ended
CREATE TABLE run_head (
  run                BLOB NOT NULL PRIMARY KEY,
  state              INTEGER NOT NULL,
  epoch              INTEGER NOT NULL,
  last               INTEGER NOT NULL,
  worker             BLOB,
  format             INTEGER NOT NULL,
  reason             TEXT,
  blocked            INTEGER NOT NULL DEFAULT 0,
  outcome            INTEGER,
  code               TEXT,
  started_at         INTEGER,
  finished_at        INTEGER,
  turns              INTEGER NOT NULL DEFAULT 0,
  input_tokens       INTEGER NOT NULL DEFAULT 0,
  output_tokens      INTEGER NOT NULL DEFAULT 0,
  cached_tokens      INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0,
  reasoning_tokens   INTEGER NOT NULL DEFAULT 0,
  estimated          INTEGER NOT NULL DEFAULT 0,
  cost               INTEGER NOT NULL DEFAULT 0,
  unpriced           INTEGER NOT NULL DEFAULT 0,
  active_ms          INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX run_head_leased ON run_head (worker) WHERE worker IS NOT NULL;
CREATE INDEX run_head_open ON run_head (run) WHERE state <> 5;
CREATE INDEX run_head_finished ON run_head (finished_at) WHERE finished_at IS NOT NULL;

-- The queue: only what may be claimed now stands here.
CREATE TABLE ready (
  inbox TEXT NOT NULL,
  rank  INTEGER NOT NULL,
  pass  INTEGER NOT NULL,
  run   BLOB NOT NULL,
  kind  TEXT,
  host  TEXT,
  PRIMARY KEY (inbox, rank, pass, run)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX ready_run ON ready (run);

-- A body stands here, or under its hash in blob.
CREATE TABLE journal (
  run   BLOB NOT NULL,
  seq   INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  at    INTEGER NOT NULL,
  kind  TEXT NOT NULL,
  v     INTEGER NOT NULL,
  body  TEXT,
  blob  BLOB
) STRICT;
CREATE UNIQUE INDEX journal_place ON journal (run, seq);

CREATE TABLE blob (
  hash       BLOB NOT NULL,
  touched_at INTEGER NOT NULL,
  content    BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX blob_hash ON blob (hash);
CREATE INDEX blob_touched ON blob (touched_at, hash);

CREATE TABLE blob_ref (
  run  BLOB NOT NULL,
  hash BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX blob_ref_run ON blob_ref (run, hash);
CREATE INDEX blob_ref_hash ON blob_ref (hash);

CREATE TABLE definition (
  hash    BLOB NOT NULL,
  content BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX definition_hash ON definition (hash);

-- status: 0 open, 1 answered, 2 expired, 3 withdrawn
CREATE TABLE gate (
  id        BLOB NOT NULL PRIMARY KEY,
  run       BLOB NOT NULL,
  status    INTEGER NOT NULL,
  raised_at INTEGER NOT NULL,
  deadline  INTEGER,
  submitter TEXT,
  spec      TEXT NOT NULL,
  answers   TEXT NOT NULL
) STRICT;
CREATE INDEX gate_run ON gate (run, status);
CREATE INDEX gate_open ON gate (id) WHERE status = 0;

CREATE TABLE rule (
  run  BLOB NOT NULL,
  rule BLOB NOT NULL,
  data TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX rule_run ON rule (run, rule);

CREATE TABLE timer (
  fire_at INTEGER NOT NULL,
  timer   BLOB NOT NULL,
  run     BLOB NOT NULL,
  what    TEXT NOT NULL,
  PRIMARY KEY (fire_at, timer)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX timer_timer ON timer (timer);
CREATE INDEX timer_run ON timer (run);

CREATE TABLE steer (
  id     INTEGER PRIMARY KEY,
  run    BLOB NOT NULL,
  steer  BLOB NOT NULL,
  queued INTEGER NOT NULL,
  data   TEXT NOT NULL
) STRICT;
CREATE INDEX steer_run ON steer (run, id);
CREATE INDEX steer_queued ON steer (run) WHERE queued = 1;

CREATE TABLE lane (
  lane     TEXT NOT NULL PRIMARY KEY,
  head     BLOB,
  depth    INTEGER NOT NULL,
  next_seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE seat (
  sandbox  BLOB NOT NULL PRIMARY KEY,
  provider TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX seat_provider ON seat (provider);

CREATE TABLE seat_wait (
  provider TEXT NOT NULL,
  rank     INTEGER NOT NULL,
  since    INTEGER NOT NULL,
  run      BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX seat_wait_run ON seat_wait (run, provider);
CREATE INDEX seat_wait_turn ON seat_wait (provider, rank, since, run);

-- The account of a tree of runs.
CREATE TABLE budget (
  root         BLOB NOT NULL PRIMARY KEY,
  cap_micros   INTEGER,
  cap_tokens   INTEGER,
  spent_micros INTEGER NOT NULL DEFAULT 0,
  spent_tokens INTEGER NOT NULL DEFAULT 0,
  lost_micros  INTEGER NOT NULL DEFAULT 0,
  lost_tokens  INTEGER NOT NULL DEFAULT 0,
  held_micros  INTEGER NOT NULL DEFAULT 0,
  held_tokens  INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Results that came when their run had ended.
CREATE TABLE effect (
  id   INTEGER PRIMARY KEY,
  run  BLOB NOT NULL,
  call TEXT NOT NULL,
  text TEXT NOT NULL
) STRICT;
CREATE INDEX effect_run ON effect (run);

CREATE TABLE usage (
  run                BLOB NOT NULL,
  root               BLOB NOT NULL,
  at                 INTEGER NOT NULL,
  model              TEXT NOT NULL,
  input_tokens       INTEGER NOT NULL,
  output_tokens      INTEGER NOT NULL,
  cached_tokens      INTEGER NOT NULL,
  cache_write_tokens INTEGER NOT NULL,
  reasoning_tokens   INTEGER NOT NULL,
  estimated          INTEGER NOT NULL,
  cost               INTEGER
) STRICT;
CREATE INDEX usage_run ON usage (run);
CREATE INDEX usage_root ON usage (root);
CREATE INDEX usage_at ON usage (at);

CREATE TABLE idem (
  principal TEXT NOT NULL,
  key       TEXT NOT NULL,
  body      BLOB NOT NULL,
  runs      BLOB NOT NULL,
  until     INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX idem_key ON idem (principal, key);
CREATE INDEX idem_until ON idem (until);

CREATE TABLE outbox (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  run      BLOB NOT NULL,
  endpoint TEXT NOT NULL,
  body     TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  due_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX outbox_run ON outbox (run);

CREATE TABLE checkpoint (
  run   BLOB NOT NULL PRIMARY KEY,
  seq   INTEGER NOT NULL,
  fold  TEXT NOT NULL,
  state BLOB NOT NULL
) STRICT;

CREATE TABLE bucket (
  account TEXT NOT NULL PRIMARY KEY,
  until   INTEGER NOT NULL
) STRICT;

-- state: 0 live, 1 draining, 2 dead
CREATE TABLE worker (
  id             BLOB NOT NULL PRIMARY KEY,
  host           TEXT NOT NULL,
  build          TEXT NOT NULL,
  state          INTEGER NOT NULL,
  ttl_ms         INTEGER NOT NULL,
  beat_at        INTEGER NOT NULL,
  in_touch_since INTEGER NOT NULL
) STRICT;

CREATE TABLE thread (
  id      INTEGER PRIMARY KEY,
  thread  TEXT NOT NULL,
  message TEXT NOT NULL
) STRICT;
CREATE INDEX thread_thread ON thread (thread, id);

CREATE TABLE sandbox (
  sandbox BLOB NOT NULL PRIMARY KEY,
  owner   BLOB NOT NULL,
  sits    INTEGER NOT NULL,     -- it has a right to its seat
  data    TEXT NOT NULL
) STRICT;
CREATE INDEX sandbox_owner ON sandbox (owner);
