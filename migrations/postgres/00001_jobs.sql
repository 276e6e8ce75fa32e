-- Jobs, their attempts and their transcripts: the schema of sqlite/00001_jobs.sql, as Postgres says it.
--
-- Times are microseconds since 1970 in UTC, durations are microseconds. JSON is kept as text, byte for byte: jsonb refuses \u0000. What is compared
-- and indexed has the collation "C", so that an index does not depend on the locales of the system.

-- +goose Up

CREATE TABLE jobs (
    seq              BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- order of arrival, for sorting only
    id               TEXT    COLLATE "C" NOT NULL CONSTRAINT jobs_id UNIQUE CHECK (id <> ''),
    state            TEXT    COLLATE "C" NOT NULL CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'canceled', 'expired')),
    priority         TEXT    COLLATE "C" NOT NULL CHECK (priority IN ('interactive', 'bulk')),
    version          BIGINT  NOT NULL DEFAULT 1, -- grows with each change that a client can see

    attempt          BIGINT  NOT NULL DEFAULT 0, -- the fencing token: raised by each claim, never reused
    generation       BIGINT  NOT NULL DEFAULT 0, -- raised by each hand-over to the queue
    fails            BIGINT  NOT NULL DEFAULT 0, -- failed attempts that were charged
    lost             BIGINT  NOT NULL DEFAULT 0, -- attempts whose worker fell silent
    max_attempts     BIGINT  NOT NULL CHECK (max_attempts > 0),

    dispatched_at    BIGINT, -- queued: a ticket is out since then
    not_before       BIGINT, -- queued: no ticket before then
    lease_until      BIGINT, -- running: the worker is believed alive until then
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    phase            TEXT    NOT NULL DEFAULT '',
    progress_us      BIGINT  NOT NULL DEFAULT 0,
    worker           TEXT    NOT NULL DEFAULT '', -- of the newest attempt
    device           TEXT    NOT NULL DEFAULT '',

    created_at       BIGINT  NOT NULL,
    started_at       BIGINT,
    finished_at      BIGINT,

    name             TEXT    NOT NULL,
    attention_mode   TEXT    NOT NULL, -- as asked for
    labels           TEXT,             -- JSON object of strings; job_labels is its index
    container        TEXT    NOT NULL,
    codec            TEXT    NOT NULL,
    sample_rate      BIGINT  NOT NULL,
    channels         BIGINT  NOT NULL,
    audio_us         BIGINT  NOT NULL CHECK (audio_us >= 0),
    audio_bytes      BIGINT  NOT NULL,
    audio_sha256     TEXT    NOT NULL,
    blob_key         TEXT    NOT NULL,

    attention        TEXT, -- JSON, of the attempt that succeeded
    problem          TEXT, -- JSON, why the job ended without a transcript

    CHECK ((state = 'running') = (lease_until IS NOT NULL)),
    CHECK (state = 'running' OR (cancel_requested = 0 AND phase = '')),
    CHECK (state = 'queued' OR (dispatched_at IS NULL AND not_before IS NULL)),
    CHECK (dispatched_at IS NULL OR not_before IS NULL),
    CHECK ((state IN ('queued', 'running')) = (finished_at IS NULL))
) WITH (
    -- A row is written some five times, and what was before stands in the way of the dispatcher until it is vacuumed: not only when a fifth of
    -- a million rows has changed, but early.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02
);

-- Each of these indexes has a condition that always holds, seq <> -N with an N of its own. Postgres uses a partial index only for statements that
-- repeat its condition: so a statement of the store names the index that it means, and finds no other. Left to itself, the planner looks for the next
-- job along jobs_created, past all the jobs that have ended, since it cannot know that those come first.

-- Lists, newest or oldest first; lists by state, and the place of a job in the queue with the audio before it, from the index alone.
CREATE INDEX jobs_created ON jobs (created_at, seq)
    WHERE seq <> -1;
CREATE INDEX jobs_state ON jobs (state, priority, created_at, seq) INCLUDE (audio_us)
    WHERE seq <> -2;

-- The dispatcher: what can be handed over, what will be later, what has been.
CREATE INDEX jobs_ready ON jobs (priority, created_at, seq)
    WHERE seq <> -3 AND state = 'queued' AND dispatched_at IS NULL AND not_before IS NULL;
CREATE INDEX jobs_delayed ON jobs (not_before)
    WHERE seq <> -4 AND state = 'queued' AND not_before IS NOT NULL;
CREATE INDEX jobs_dispatched ON jobs (dispatched_at, priority)
    WHERE seq <> -5 AND state = 'queued' AND dispatched_at IS NOT NULL;

-- The reaper: whose lease ends first.
CREATE INDEX jobs_leased ON jobs (lease_until)
    WHERE seq <> -6 AND state = 'running';

-- The index of labels: which jobs carry key = value, in the order of lists. Triggers keep it, as an index keeps itself.
CREATE TABLE job_labels (
    key        TEXT   COLLATE "C" NOT NULL,
    value      TEXT   COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    PRIMARY KEY (key, value, created_at, seq)
);

-- +goose StatementBegin
CREATE FUNCTION jobs_label_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job_labels (key, value, created_at, seq)
    SELECT l.key, l.value, NEW.created_at, NEW.seq FROM json_each_text(NEW.labels::json) AS l;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER jobs_label_insert AFTER INSERT ON jobs
    FOR EACH ROW WHEN (NEW.labels IS NOT NULL) EXECUTE FUNCTION jobs_label_insert();

-- +goose StatementBegin
CREATE FUNCTION jobs_label_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM job_labels j USING json_each_text(OLD.labels::json) AS l
    WHERE j.key = l.key AND j.value = l.value AND j.created_at = OLD.created_at AND j.seq = OLD.seq;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER jobs_label_delete AFTER DELETE ON jobs
    FOR EACH ROW WHEN (OLD.labels IS NOT NULL) EXECUTE FUNCTION jobs_label_delete();

-- One row a claim. Only its end is written later, once.
CREATE TABLE attempts (
    job_id     TEXT   COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    attempt    BIGINT NOT NULL,
    worker     TEXT   NOT NULL,
    device     TEXT   NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at   BIGINT,
    outcome    TEXT   NOT NULL DEFAULT ''
               CHECK (outcome IN ('', 'succeeded', 'failed', 'retried', 'released', 'canceled', 'lost')),
    problem    TEXT, -- JSON
    PRIMARY KEY (job_id, attempt),
    CHECK ((outcome = '') = (ended_at IS NULL))
);

-- No job has two attempts under way.
CREATE UNIQUE INDEX attempts_open ON attempts (job_id) WHERE ended_at IS NULL;

-- The primary key says: one transcript a job.
CREATE TABLE transcripts (
    job_id     TEXT   COLLATE "C" NOT NULL PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    attempt    BIGINT NOT NULL,
    body       TEXT   NOT NULL, -- JSON
    created_at BIGINT NOT NULL
);

-- How many jobs, and how much audio, are in each state: the sum over the shards, of which each alone means nothing and may be negative. Kept by
-- triggers, so that no statement can forget it.
--
-- A transaction keeps the counters that it wrote locked until it has committed. With one row for each state and class, all accepts would commit
-- one after the other; so each takes a shard that nobody else is writing.
CREATE TABLE counters (
    state    TEXT    COLLATE "C" NOT NULL,
    priority TEXT    COLLATE "C" NOT NULL,
    shard    INTEGER NOT NULL,
    jobs     BIGINT  NOT NULL DEFAULT 0,
    audio_us BIGINT  NOT NULL DEFAULT 0,
    PRIMARY KEY (state, priority, shard)
) WITH (
    fillfactor = 25, -- room for new versions of rows beside the old ones
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000
);

INSERT INTO counters (state, priority, shard)
SELECT s.state, p.priority, shard
FROM (VALUES ('queued'), ('running'), ('succeeded'), ('failed'), ('canceled'), ('expired')) AS s (state)
CROSS JOIN (VALUES ('interactive'), ('bulk')) AS p (priority)
CROSS JOIN generate_series(0, 15) AS shard;

-- +goose StatementBegin
CREATE FUNCTION count_jobs(its_state TEXT, its_priority TEXT, more_jobs BIGINT, more_us BIGINT) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    free INTEGER;
BEGIN
    SELECT shard INTO free FROM counters WHERE state = its_state AND priority = its_priority
    ORDER BY shard LIMIT 1 FOR UPDATE SKIP LOCKED;
    UPDATE counters SET jobs = jobs + more_jobs, audio_us = audio_us + more_us
    WHERE state = its_state AND priority = its_priority AND shard = coalesce(free, pg_backend_pid() % 16);
END $$;
-- +goose StatementEnd

-- Inserts and deletes are counted once a statement, however many rows it has. The counters of several states are written in the order of the
-- states' names: two transactions that have to wait for each other do not wait in a circle. The table of counters never grows, so there is nothing to
-- plan anew each time, as the sessions of the store do.

-- +goose StatementBegin
CREATE FUNCTION jobs_count_insert() RETURNS trigger LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM count_jobs(c.state, c.priority, c.jobs, c.audio_us)
    FROM (SELECT state, priority, count(*) AS jobs, sum(audio_us)::bigint AS audio_us FROM changed
          GROUP BY state, priority ORDER BY state, priority) AS c;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER jobs_count_insert AFTER INSERT ON jobs
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION jobs_count_insert();

-- +goose StatementBegin
CREATE FUNCTION jobs_count_delete() RETURNS trigger LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM count_jobs(c.state, c.priority, -c.jobs, -c.audio_us)
    FROM (SELECT state, priority, count(*) AS jobs, sum(audio_us)::bigint AS audio_us FROM changed
          GROUP BY state, priority ORDER BY state, priority) AS c;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER jobs_count_delete AFTER DELETE ON jobs
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION jobs_count_delete();

-- +goose StatementBegin
CREATE FUNCTION jobs_count_update() RETURNS trigger LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF OLD.state < NEW.state THEN
        PERFORM count_jobs(OLD.state, OLD.priority, -1, -OLD.audio_us);
        PERFORM count_jobs(NEW.state, NEW.priority, 1, NEW.audio_us);
    ELSE
        PERFORM count_jobs(NEW.state, NEW.priority, 1, NEW.audio_us);
        PERFORM count_jobs(OLD.state, OLD.priority, -1, -OLD.audio_us);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER jobs_count_update AFTER UPDATE OF state, priority, audio_us ON jobs
    FOR EACH ROW EXECUTE FUNCTION jobs_count_update();
