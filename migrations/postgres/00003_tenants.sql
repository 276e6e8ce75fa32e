-- Tenants, request keys, run limits, and what is forgotten when: the changes of sqlite/00003_tenants.sql, as Postgres says them.

-- +goose Up

ALTER TABLE jobs
    ADD COLUMN tenant TEXT COLLATE "C" NOT NULL DEFAULT 'default',  -- who submitted it
    ADD COLUMN request_key TEXT COLLATE "C",                        -- the Idempotency-Key it came with
    ADD COLUMN request_hash TEXT NOT NULL DEFAULT '',               -- of all that was asked for with it
    ADD COLUMN audio_gone INTEGER NOT NULL DEFAULT 0 CHECK (audio_gone IN (0, 1)), -- its blobs may be deleted, or have been
    ADD COLUMN node TEXT NOT NULL DEFAULT '',                       -- where the newest attempt's worker runs
    ADD COLUMN deadline BIGINT CHECK (deadline IS NULL OR state = 'running'), -- running: the attempt should have ended by then
    ADD COLUMN expired_at BIGINT;                                   -- expired: since then

UPDATE jobs SET audio_gone = 1, expired_at = finished_at WHERE state = 'expired';

-- A tenant uses a request key once.
CREATE UNIQUE INDEX jobs_request ON jobs (tenant, request_key) WHERE request_key IS NOT NULL;

-- The dispatcher goes from tenant to tenant, and takes the oldest of each.
DROP INDEX jobs_ready;
CREATE INDEX jobs_ready ON jobs (priority, tenant, created_at, seq)
    WHERE seq <> -3 AND state = 'queued' AND dispatched_at IS NULL AND not_before IS NULL;

-- The reaper: whose limit ends first.
CREATE INDEX jobs_overdue ON jobs (deadline)
    WHERE seq <> -7 AND state = 'running' AND deadline IS NOT NULL;

-- Retention, each the oldest first: whose audio is dropped next, what expires next, which tombstone goes next.
CREATE INDEX jobs_audio ON jobs (finished_at)
    WHERE seq <> -8 AND state IN ('succeeded', 'failed', 'canceled') AND audio_gone = 0;
CREATE INDEX jobs_ended ON jobs (finished_at)
    WHERE seq <> -9 AND state IN ('succeeded', 'failed', 'canceled');
CREATE INDEX jobs_expired ON jobs (expired_at)
    WHERE seq <> -10 AND state = 'expired';

-- The term of the one that leads: who, and until when.
CREATE TABLE leader (
    name   TEXT   NOT NULL PRIMARY KEY CHECK (name = 'leader'),
    holder TEXT   NOT NULL,
    until  BIGINT NOT NULL
);

-- Who this system is, and the marker of the place where its recordings are, once it is known.
CREATE TABLE system (
    name  TEXT NOT NULL PRIMARY KEY CHECK (name = 'system'),
    id    TEXT NOT NULL,
    place TEXT NOT NULL DEFAULT ''
);
INSERT INTO system (name, id) VALUES ('system', replace(gen_random_uuid()::text, '-', ''));

-- How often counters have been set right. Who finds another number than he began with has been overtaken.
CREATE TABLE recounts (n BIGINT NOT NULL);
INSERT INTO recounts (n) VALUES (0);

-- What each tenant has open: the sum over the shards, as in the table of counters. Here a shard comes when it is needed, up to 16 of them, and a row
-- that has come to nothing is removed: most tenants have nothing open.
CREATE TABLE tenant_counters (
    tenant   TEXT    COLLATE "C" NOT NULL,
    state    TEXT    COLLATE "C" NOT NULL CHECK (state IN ('queued', 'running')),
    priority TEXT    COLLATE "C" NOT NULL,
    shard    INTEGER NOT NULL,
    jobs     BIGINT  NOT NULL,
    audio_us BIGINT  NOT NULL,
    PRIMARY KEY (tenant, state, priority, shard)
) WITH (
    fillfactor = 25,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000
);

INSERT INTO tenant_counters (tenant, state, priority, shard, jobs, audio_us)
SELECT tenant, state, priority, 0, count(*), sum(audio_us)::bigint FROM jobs WHERE state IN ('queued', 'running') GROUP BY tenant, state, priority;

-- What has ever succeeded, also of jobs that are no more: the sum over the shards. A job succeeds once, and from then on has the attention of its
-- engine.
CREATE TABLE processed (
    shard       INTEGER NOT NULL PRIMARY KEY,
    jobs        BIGINT  NOT NULL,
    audio_us    BIGINT  NOT NULL,
    lost        BIGINT  NOT NULL DEFAULT 0, -- attempts that were lost, however it was noticed
    quarantined BIGINT  NOT NULL DEFAULT 0  -- jobs that failed with one of these
) WITH (
    fillfactor = 25,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000
);

INSERT INTO processed (shard, jobs, audio_us) SELECT shard, 0, 0 FROM generate_series(0, 15) AS shard;
UPDATE processed SET (jobs, audio_us) = (SELECT count(*), coalesce(sum(j.audio_us), 0)::bigint FROM jobs AS j WHERE j.attention IS NOT NULL) WHERE shard = 0;

-- Nothing but open jobs is counted by tenant. A shard that another transaction is writing is passed over; the first to come makes one.
-- +goose StatementBegin
CREATE FUNCTION count_tenant(its_tenant TEXT, its_state TEXT, its_priority TEXT, more_jobs BIGINT, more_us BIGINT) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    free INTEGER;
BEGIN
    IF its_state NOT IN ('queued', 'running') THEN
        RETURN;
    END IF;
    SELECT t.shard INTO free FROM tenant_counters AS t
    WHERE t.tenant = its_tenant AND t.state = its_state AND t.priority = its_priority
    ORDER BY t.shard LIMIT 1 FOR UPDATE SKIP LOCKED;
    free := coalesce(free, pg_backend_pid() % 16);
    INSERT INTO tenant_counters AS t (tenant, state, priority, shard, jobs, audio_us)
    VALUES (its_tenant, its_state, its_priority, free, more_jobs, more_us)
    ON CONFLICT (tenant, state, priority, shard) DO UPDATE SET jobs = t.jobs + excluded.jobs, audio_us = t.audio_us + excluded.audio_us;
    DELETE FROM tenant_counters AS t
    WHERE t.tenant = its_tenant AND t.state = its_state AND t.priority = its_priority AND t.shard = free AND t.jobs = 0 AND t.audio_us = 0;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION count_processed(more_us BIGINT) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    free INTEGER;
BEGIN
    SELECT shard INTO free FROM processed ORDER BY shard LIMIT 1 FOR UPDATE SKIP LOCKED;
    UPDATE processed SET jobs = jobs + 1, audio_us = audio_us + more_us WHERE shard = coalesce(free, pg_backend_pid() % 16);
END $$;
-- +goose StatementEnd

-- The functions of 00001, which count by tenant too from here on: first the counters of all, then those of tenants, then what is processed, and in
-- each the states in the order of their names. Plans are kept, and an index is taken however short the table of tenants was when they were made.

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION jobs_count_insert() RETURNS trigger LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    PERFORM count_jobs(c.state, c.priority, c.jobs, c.audio_us)
    FROM (SELECT state, priority, count(*) AS jobs, sum(audio_us)::bigint AS audio_us FROM changed
          GROUP BY state, priority ORDER BY state, priority) AS c;
    PERFORM count_tenant(c.tenant, c.state, c.priority, c.jobs, c.audio_us)
    FROM (SELECT tenant, state, priority, count(*) AS jobs, sum(audio_us)::bigint AS audio_us FROM changed
          GROUP BY tenant, state, priority ORDER BY tenant, state, priority) AS c;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION jobs_count_delete() RETURNS trigger LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    PERFORM count_jobs(c.state, c.priority, -c.jobs, -c.audio_us)
    FROM (SELECT state, priority, count(*) AS jobs, sum(audio_us)::bigint AS audio_us FROM changed
          GROUP BY state, priority ORDER BY state, priority) AS c;
    PERFORM count_tenant(c.tenant, c.state, c.priority, -c.jobs, -c.audio_us)
    FROM (SELECT tenant, state, priority, count(*) AS jobs, sum(audio_us)::bigint AS audio_us FROM changed
          GROUP BY tenant, state, priority ORDER BY tenant, state, priority) AS c;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION jobs_count_update() RETURNS trigger LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
BEGIN
    IF OLD.state < NEW.state THEN
        PERFORM count_jobs(OLD.state, OLD.priority, -1, -OLD.audio_us);
        PERFORM count_jobs(NEW.state, NEW.priority, 1, NEW.audio_us);
        PERFORM count_tenant(OLD.tenant, OLD.state, OLD.priority, -1, -OLD.audio_us);
        PERFORM count_tenant(NEW.tenant, NEW.state, NEW.priority, 1, NEW.audio_us);
    ELSE
        PERFORM count_jobs(NEW.state, NEW.priority, 1, NEW.audio_us);
        PERFORM count_jobs(OLD.state, OLD.priority, -1, -OLD.audio_us);
        PERFORM count_tenant(NEW.tenant, NEW.state, NEW.priority, 1, NEW.audio_us);
        PERFORM count_tenant(OLD.tenant, OLD.state, OLD.priority, -1, -OLD.audio_us);
    END IF;
    IF NEW.state = 'succeeded' AND OLD.state <> 'succeeded' THEN
        PERFORM count_processed(NEW.audio_us);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
DROP TRIGGER jobs_count_update ON jobs;
CREATE TRIGGER jobs_count_update AFTER UPDATE OF tenant, state, priority, audio_us ON jobs
    FOR EACH ROW EXECUTE FUNCTION jobs_count_update();
