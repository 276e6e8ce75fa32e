-- Tenants, request keys, run limits, and what is forgotten when.

-- +goose Up

ALTER TABLE jobs ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';  -- who submitted it
ALTER TABLE jobs ADD COLUMN request_key TEXT;                        -- the Idempotency-Key it came with
ALTER TABLE jobs ADD COLUMN request_hash TEXT NOT NULL DEFAULT '';   -- of all that was asked for with it
ALTER TABLE jobs ADD COLUMN audio_gone INTEGER NOT NULL DEFAULT 0 CHECK (audio_gone IN (0, 1)); -- its blobs may be deleted, or have been
ALTER TABLE jobs ADD COLUMN node TEXT NOT NULL DEFAULT '';           -- where the newest attempt's worker runs
ALTER TABLE jobs ADD COLUMN deadline INTEGER CHECK (deadline IS NULL OR state = 'running'); -- running: the attempt should have ended by then
ALTER TABLE jobs ADD COLUMN expired_at INTEGER;                      -- expired: since then

UPDATE jobs SET audio_gone = 1, expired_at = finished_at WHERE state = 'expired';

-- A tenant uses a request key once.
CREATE UNIQUE INDEX jobs_request ON jobs (tenant, request_key) WHERE request_key IS NOT NULL;

-- The dispatcher goes from tenant to tenant, and takes the oldest of each.
DROP INDEX jobs_ready;
CREATE INDEX jobs_ready ON jobs (priority, tenant, created_at)
    WHERE state = 'queued' AND dispatched_at IS NULL AND not_before IS NULL;

-- The reaper: whose limit ends first.
CREATE INDEX jobs_overdue ON jobs (deadline) WHERE state = 'running' AND deadline IS NOT NULL;

-- Retention, each the oldest first: whose audio is dropped next, what expires next, which tombstone goes next.
CREATE INDEX jobs_audio ON jobs (finished_at) WHERE state IN ('succeeded', 'failed', 'canceled') AND audio_gone = 0;
CREATE INDEX jobs_ended ON jobs (finished_at) WHERE state IN ('succeeded', 'failed', 'canceled');
CREATE INDEX jobs_expired ON jobs (expired_at) WHERE state = 'expired';

-- The term of the one that leads: who, and until when.
CREATE TABLE leader (
    name   TEXT    NOT NULL PRIMARY KEY CHECK (name = 'leader'),
    holder TEXT    NOT NULL,
    until  INTEGER NOT NULL
) STRICT;

-- Who this system is, and the marker of the place where its recordings are, once it is known.
CREATE TABLE system (
    name  TEXT NOT NULL PRIMARY KEY CHECK (name = 'system'),
    id    TEXT NOT NULL,
    place TEXT NOT NULL DEFAULT ''
) STRICT;
INSERT INTO system (name, id) VALUES ('system', lower(hex(randomblob(16))));

-- How often counters have been set right. Who finds another number than he began with has been overtaken.
CREATE TABLE recounts (n INTEGER NOT NULL) STRICT;
INSERT INTO recounts (n) VALUES (0);

-- All counters have shards on Postgres. Here one transaction writes at a time: there is one shard, and the same statements.
ALTER TABLE counters ADD COLUMN shard INTEGER NOT NULL DEFAULT 0;

-- What each tenant has open. A row that has come to nothing is removed: most tenants have nothing open.
CREATE TABLE tenant_counters (
    tenant   TEXT    NOT NULL,
    state    TEXT    NOT NULL CHECK (state IN ('queued', 'running')),
    priority TEXT    NOT NULL,
    shard    INTEGER NOT NULL,
    jobs     INTEGER NOT NULL,
    audio_us INTEGER NOT NULL,
    PRIMARY KEY (tenant, state, priority, shard)
) STRICT, WITHOUT ROWID;

INSERT INTO tenant_counters (tenant, state, priority, shard, jobs, audio_us)
SELECT tenant, state, priority, 0, count(*), sum(audio_us) FROM jobs WHERE state IN ('queued', 'running') GROUP BY tenant, state, priority;

-- +goose StatementBegin
CREATE TRIGGER jobs_tenant_insert AFTER INSERT ON jobs WHEN NEW.state IN ('queued', 'running') BEGIN
    INSERT INTO tenant_counters (tenant, state, priority, shard, jobs, audio_us)
    VALUES (NEW.tenant, NEW.state, NEW.priority, 0, 1, NEW.audio_us)
    ON CONFLICT (tenant, state, priority, shard) DO UPDATE SET jobs = jobs + 1, audio_us = audio_us + excluded.audio_us;
    DELETE FROM tenant_counters
    WHERE tenant = NEW.tenant AND state = NEW.state AND priority = NEW.priority AND shard = 0 AND jobs = 0 AND audio_us = 0;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER jobs_tenant_leave AFTER UPDATE OF tenant, state, priority, audio_us ON jobs WHEN OLD.state IN ('queued', 'running') BEGIN
    INSERT INTO tenant_counters (tenant, state, priority, shard, jobs, audio_us)
    VALUES (OLD.tenant, OLD.state, OLD.priority, 0, -1, -OLD.audio_us)
    ON CONFLICT (tenant, state, priority, shard) DO UPDATE SET jobs = jobs - 1, audio_us = audio_us + excluded.audio_us;
    DELETE FROM tenant_counters
    WHERE tenant = OLD.tenant AND state = OLD.state AND priority = OLD.priority AND shard = 0 AND jobs = 0 AND audio_us = 0;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER jobs_tenant_enter AFTER UPDATE OF tenant, state, priority, audio_us ON jobs WHEN NEW.state IN ('queued', 'running') BEGIN
    INSERT INTO tenant_counters (tenant, state, priority, shard, jobs, audio_us)
    VALUES (NEW.tenant, NEW.state, NEW.priority, 0, 1, NEW.audio_us)
    ON CONFLICT (tenant, state, priority, shard) DO UPDATE SET jobs = jobs + 1, audio_us = audio_us + excluded.audio_us;
    DELETE FROM tenant_counters
    WHERE tenant = NEW.tenant AND state = NEW.state AND priority = NEW.priority AND shard = 0 AND jobs = 0 AND audio_us = 0;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER jobs_tenant_delete AFTER DELETE ON jobs WHEN OLD.state IN ('queued', 'running') BEGIN
    INSERT INTO tenant_counters (tenant, state, priority, shard, jobs, audio_us)
    VALUES (OLD.tenant, OLD.state, OLD.priority, 0, -1, -OLD.audio_us)
    ON CONFLICT (tenant, state, priority, shard) DO UPDATE SET jobs = jobs - 1, audio_us = audio_us + excluded.audio_us;
    DELETE FROM tenant_counters
    WHERE tenant = OLD.tenant AND state = OLD.state AND priority = OLD.priority AND shard = 0 AND jobs = 0 AND audio_us = 0;
END;
-- +goose StatementEnd

-- What has ever succeeded, also of jobs that are no more. A job succeeds once, and from then on has the attention of its engine.
CREATE TABLE processed (
    shard       INTEGER NOT NULL PRIMARY KEY,
    jobs        INTEGER NOT NULL,
    audio_us    INTEGER NOT NULL,
    lost        INTEGER NOT NULL DEFAULT 0, -- attempts that were lost, however it was noticed
    quarantined INTEGER NOT NULL DEFAULT 0  -- jobs that failed with one of these
) STRICT;

INSERT INTO processed (shard, jobs, audio_us) SELECT 0, count(*), coalesce(sum(audio_us), 0) FROM jobs WHERE attention IS NOT NULL;

-- +goose StatementBegin
CREATE TRIGGER jobs_processed AFTER UPDATE OF state ON jobs WHEN NEW.state = 'succeeded' AND OLD.state <> 'succeeded' BEGIN
    UPDATE processed SET jobs = jobs + 1, audio_us = audio_us + NEW.audio_us WHERE shard = 0;
END;
-- +goose StatementEnd
