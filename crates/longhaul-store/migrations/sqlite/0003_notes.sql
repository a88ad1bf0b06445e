-- What agents wrote down about a resource. Removed by people only: nothing else
-- deletes here, and a number is never given twice.
CREATE TABLE note (
  number   INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of writing
  id       BLOB NOT NULL,
  resource TEXT NOT NULL,
  key      TEXT NOT NULL,       -- its writer's: the same one is the same note
  text     TEXT NOT NULL,
  tags     TEXT NOT NULL,
  run      BLOB,                -- who wrote it; it may be forgotten by now
  at       INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX note_id ON note (id);
CREATE UNIQUE INDEX note_key ON note (resource, key);
CREATE INDEX note_order ON note (resource, number);

-- The words of each note, without its text. The resource is one word of its own,
-- so that nobody's search walks through what was written about others.
CREATE VIRTUAL TABLE note_word USING fts5(
  resource, words, tags,
  content = '', contentless_delete = 1,
  tokenize = "unicode61 remove_diacritics 2"
);
