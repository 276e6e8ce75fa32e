-- Jobs, their attempts and their transcripts.
--
-- Times are microseconds since 1970 in UTC, durations are microseconds. An index on a table with a rowid ends in the rowid, here seq,
-- without saying so: ORDER BY created_at, seq reads jobs_created as it lies.

-- +goose Up

CREATE TABLE jobs (
    seq              INTEGER PRIMARY KEY, -- order of arrival, for sorting only
    id               TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    state            TEXT    NOT NULL CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'canceled', 'expired')),
    priority         TEXT    NOT NULL CHECK (priority IN ('interactive', 'bulk')),
    version          INTEGER NOT NULL DEFAULT 1, -- grows with each change that a client can see

    attempt          INTEGER NOT NULL DEFAULT 0, -- the fencing token: raised by each claim, never reused
    generation       INTEGER NOT NULL DEFAULT 0, -- raised by each hand-over to the queue
    fails            INTEGER NOT NULL DEFAULT 0, -- failed attempts that were charged
    lost             INTEGER NOT NULL DEFAULT 0, -- attempts whose worker fell silent
    max_attempts     INTEGER NOT NULL CHECK (max_attempts > 0),

    dispatched_at    INTEGER, -- queued: a ticket is out since then
    not_before       INTEGER, -- queued: no ticket before then
    lease_until      INTEGER, -- running: the worker is believed alive until then
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    phase            TEXT    NOT NULL DEFAULT '',
    progress_us      INTEGER NOT NULL DEFAULT 0,
    worker           TEXT    NOT NULL DEFAULT '', -- of the newest attempt
    device           TEXT    NOT NULL DEFAULT '',

    created_at       INTEGER NOT NULL,
    started_at       INTEGER,
    finished_at      INTEGER,

    name             TEXT    NOT NULL,
    attention_mode   TEXT    NOT NULL, -- as asked for
    labels           TEXT,             -- JSON object of strings; job_labels is its index
    container        TEXT    NOT NULL,
    codec            TEXT    NOT NULL,
    sample_rate      INTEGER NOT NULL,
    channels         INTEGER NOT NULL,
    audio_us         INTEGER NOT NULL CHECK (audio_us >= 0),
    audio_bytes      INTEGER NOT NULL,
    audio_sha256     TEXT    NOT NULL,
    blob_key         TEXT    NOT NULL,

    attention        TEXT, -- JSON, of the attempt that succeeded
    problem          TEXT, -- JSON, why the job ended without a transcript

    CHECK ((state = 'running') = (lease_until IS NOT NULL)),
    CHECK (state = 'running' OR (cancel_requested = 0 AND phase = '')),
    CHECK (state = 'queued' OR (dispatched_at IS NULL AND not_before IS NULL)),
    CHECK (dispatched_at IS NULL OR not_before IS NULL),
    CHECK ((state IN ('queued', 'running')) = (finished_at IS NULL))
) STRICT;

-- Lists, newest or oldest first; lists by state, and the place of a job in the queue with the audio before it, from the index alone:
-- that is why jobs_state spells out seq, with a column behind it.
CREATE INDEX jobs_created ON jobs (created_at);
CREATE INDEX jobs_state ON jobs (state, priority, created_at, seq, audio_us);

-- The dispatcher: what can be handed over, what will be later, what has been. The statements name these indexes (INDEXED BY), since the
-- planner would take jobs_state, which knows nothing of tickets and delays.
CREATE INDEX jobs_ready ON jobs (priority, created_at)
    WHERE state = 'queued' AND dispatched_at IS NULL AND not_before IS NULL;
CREATE INDEX jobs_delayed ON jobs (not_before)
    WHERE state = 'queued' AND not_before IS NOT NULL;
CREATE INDEX jobs_dispatched ON jobs (dispatched_at, priority)
    WHERE state = 'queued' AND dispatched_at IS NOT NULL;

-- The reaper: whose lease ends first.
CREATE INDEX jobs_leased ON jobs (lease_until) WHERE state = 'running';

-- The index of labels: which jobs carry key = value, in the order of lists. Triggers keep it, as an index keeps itself.
CREATE TABLE job_labels (
    key        TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (key, value, created_at, seq)
) STRICT, WITHOUT ROWID;

-- +goose StatementBegin
CREATE TRIGGER jobs_label_insert AFTER INSERT ON jobs WHEN NEW.labels IS NOT NULL BEGIN
    INSERT INTO job_labels (key, value, created_at, seq)
    SELECT key, value, NEW.created_at, NEW.seq FROM json_each(NEW.labels);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER jobs_label_delete AFTER DELETE ON jobs WHEN OLD.labels IS NOT NULL BEGIN
    DELETE FROM job_labels
    WHERE created_at = OLD.created_at AND seq = OLD.seq AND (key, value) IN (SELECT key, value FROM json_each(OLD.labels));
END;
-- +goose StatementEnd

-- One row a claim. Only its end is written later, once.
CREATE TABLE attempts (
    job_id     TEXT    NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    attempt    INTEGER NOT NULL,
    worker     TEXT    NOT NULL,
    device     TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    outcome    TEXT    NOT NULL DEFAULT ''
               CHECK (outcome IN ('', 'succeeded', 'failed', 'retried', 'released', 'canceled', 'lost')),
    problem    TEXT, -- JSON
    PRIMARY KEY (job_id, attempt),
    CHECK ((outcome = '') = (ended_at IS NULL))
) STRICT, WITHOUT ROWID;

-- No job has two attempts under way.
CREATE UNIQUE INDEX attempts_open ON attempts (job_id) WHERE ended_at IS NULL;

-- The primary key says: one transcript a job.
CREATE TABLE transcripts (
    job_id     TEXT    NOT NULL PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    attempt    INTEGER NOT NULL,
    body       TEXT    NOT NULL, -- JSON
    created_at INTEGER NOT NULL
) STRICT;

-- How many jobs, and how much audio, are in each state. Kept by triggers, so that no statement can forget it: nothing ever adds up the
-- waiting rows.
CREATE TABLE counters (
    state    TEXT    NOT NULL,
    priority TEXT    NOT NULL,
    jobs     INTEGER NOT NULL DEFAULT 0,
    audio_us INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (state, priority)
) STRICT, WITHOUT ROWID;

INSERT INTO counters (state, priority)
SELECT s.column1, p.column1
FROM (VALUES ('queued'), ('running'), ('succeeded'), ('failed'), ('canceled'), ('expired')) AS s
CROSS JOIN (VALUES ('interactive'), ('bulk')) AS p;

-- +goose StatementBegin
CREATE TRIGGER jobs_count_insert AFTER INSERT ON jobs BEGIN
    UPDATE counters SET jobs = jobs + 1, audio_us = audio_us + NEW.audio_us WHERE state = NEW.state AND priority = NEW.priority;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER jobs_count_update AFTER UPDATE OF state, priority, audio_us ON jobs BEGIN
    UPDATE counters SET jobs = jobs - 1, audio_us = audio_us - OLD.audio_us WHERE state = OLD.state AND priority = OLD.priority;
    UPDATE counters SET jobs = jobs + 1, audio_us = audio_us + NEW.audio_us WHERE state = NEW.state AND priority = NEW.priority;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER jobs_count_delete AFTER DELETE ON jobs BEGIN
    UPDATE counters SET jobs = jobs - 1, audio_us = audio_us - OLD.audio_us WHERE state = OLD.state AND priority = OLD.priority;
END;
-- +goose StatementEnd
