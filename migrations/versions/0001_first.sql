-- sqlite

CREATE TABLE api_keys (
    id VARCHAR(40) NOT NULL,
    name VARCHAR(200) NOT NULL,
    project VARCHAR(200),
    scopes JSON NOT NULL,
    sources JSON,
    sha256 VARCHAR(64) NOT NULL,
    created_at DATETIME NOT NULL,
    expires_at DATETIME,
    revoked_at DATETIME,
    used_at DATETIME,
    CONSTRAINT pk_api_keys PRIMARY KEY (id)
);

CREATE TABLE audits (
    id VARCHAR(40) NOT NULL,
    breaches JSON NOT NULL,
    looked_at JSON NOT NULL,
    objects BOOLEAN NOT NULL,
    version VARCHAR(64) NOT NULL,
    ended_at DATETIME NOT NULL,
    CONSTRAINT pk_audits PRIMARY KEY (id)
);

CREATE INDEX ix_audits_ended_at ON audits (ended_at);

CREATE TABLE system_settings (
    name VARCHAR(200) NOT NULL,
    value JSON NOT NULL,
    updated_at DATETIME NOT NULL,
    CONSTRAINT pk_system_settings PRIMARY KEY (name)
);

CREATE TABLE counters (
    name VARCHAR(200) NOT NULL,
    label VARCHAR(200) NOT NULL,
    value BIGINT NOT NULL,
    CONSTRAINT pk_counters PRIMARY KEY (name, label)
);

CREATE TABLE batches (
    project VARCHAR(200) NOT NULL,
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    reuse BOOLEAN NOT NULL,
    request_hash VARCHAR(64) NOT NULL,
    idempotency_key VARCHAR(255),
    key_id VARCHAR(40),
    priority SMALLINT DEFAULT 1 NOT NULL,
    deadline DATETIME,
    id VARCHAR(40) NOT NULL,
    accepted INTEGER DEFAULT 0 NOT NULL,
    lines INTEGER,
    bad INTEGER DEFAULT 0 NOT NULL,
    bad_lines JSON NOT NULL,
    created_at DATETIME NOT NULL,
    updated_at DATETIME NOT NULL,
    closed_at DATETIME,
    cancelled_at DATETIME,
    ended_at DATETIME,
    late BOOLEAN DEFAULT 0 NOT NULL,
    expected_at DATETIME,
    expected_basis TEXT,
    unchanged INTEGER DEFAULT 0 NOT NULL,
    skipped INTEGER DEFAULT 0 NOT NULL,
    skipped_files JSON NOT NULL,
    CONSTRAINT pk_batches PRIMARY KEY (id),
    CONSTRAINT ck_batches_counts CHECK (accepted >= 0 AND bad >= 0)
);

CREATE INDEX ix_batches_created_at_id ON batches (created_at, id);

CREATE INDEX ix_batches_deadline ON batches (deadline) WHERE deadline IS NOT NULL;

CREATE INDEX ix_batches_project_created_at_id ON batches (project, created_at, id);

CREATE UNIQUE INDEX ix_batches_project_idempotency_key ON batches (project, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE TABLE event_inbox (
    id INTEGER NOT NULL,
    at DATETIME NOT NULL,
    type VARCHAR(32) NOT NULL,
    project VARCHAR(200) NOT NULL,
    job_id VARCHAR(40),
    batch_id VARCHAR(40),
    custom_id VARCHAR(200),
    data JSON NOT NULL,
    CONSTRAINT pk_event_inbox PRIMARY KEY (id)
);

CREATE TABLE events (
    id INTEGER NOT NULL,
    at DATETIME NOT NULL,
    type VARCHAR(32) NOT NULL,
    project VARCHAR(200) NOT NULL,
    job_id VARCHAR(40),
    batch_id VARCHAR(40),
    custom_id VARCHAR(200),
    data JSON NOT NULL,
    CONSTRAINT pk_events PRIMARY KEY (id)
);

CREATE INDEX ix_events_batch_id_id ON events (batch_id, id) WHERE batch_id IS NOT NULL;

CREATE INDEX ix_events_job_id_id ON events (job_id, id) WHERE job_id IS NOT NULL;

CREATE TABLE event_position (
    name VARCHAR(200) NOT NULL,
    value BIGINT NOT NULL,
    CONSTRAINT pk_event_position PRIMARY KEY (name)
);

CREATE TABLE connections (
    project VARCHAR(200) NOT NULL,
    name VARCHAR(64) NOT NULL,
    endpoint TEXT,
    region VARCHAR(64) NOT NULL,
    prefix TEXT NOT NULL,
    key_id TEXT NOT NULL,
    secret TEXT NOT NULL,
    access VARCHAR(16) NOT NULL,
    created_at DATETIME NOT NULL,
    CONSTRAINT pk_connections PRIMARY KEY (project, name),
    CONSTRAINT ck_connections_access CHECK (access IN ('read', 'write', 'both'))
);

CREATE TABLE glossaries (
    project VARCHAR(200) NOT NULL,
    name VARCHAR(64) NOT NULL,
    version INTEGER NOT NULL,
    sha256 VARCHAR(64) NOT NULL,
    count INTEGER NOT NULL,
    weight DOUBLE NOT NULL,
    auto_add_after INTEGER,
    created_at DATETIME NOT NULL,
    created_by VARCHAR(200) NOT NULL,
    CONSTRAINT pk_glossaries PRIMARY KEY (project, name, version)
);

CREATE INDEX ix_glossaries_sha256 ON glossaries (sha256);

CREATE TABLE language_models (
    project VARCHAR(200) NOT NULL,
    name VARCHAR(64) NOT NULL,
    version INTEGER NOT NULL,
    sha256 VARCHAR(64) NOT NULL,
    size BIGINT NOT NULL,
    ngram_order INTEGER NOT NULL,
    ngrams BIGINT NOT NULL,
    model VARCHAR(200),
    created_at DATETIME NOT NULL,
    created_by VARCHAR(200) NOT NULL,
    CONSTRAINT pk_language_models PRIMARY KEY (project, name, version)
);

CREATE INDEX ix_language_models_sha256 ON language_models (sha256);

CREATE TABLE jobs (
    source_kind VARCHAR(16) NOT NULL,
    source_uri TEXT NOT NULL,
    source_size BIGINT,
    source_etag TEXT,
    source_connection VARCHAR(64),
    options JSON NOT NULL,
    name TEXT NOT NULL,
    project VARCHAR(200) NOT NULL,
    pool VARCHAR(200),
    worker VARCHAR(200),
    reuse BOOLEAN DEFAULT 0 NOT NULL,
    batch_id VARCHAR(40),
    batch_line INTEGER,
    custom_id VARCHAR(200),
    tags JSON,
    key_id VARCHAR(40),
    traceparent VARCHAR(55),
    priority SMALLINT DEFAULT 1 NOT NULL,
    deadline DATETIME,
    output JSON,
    rerun_of VARCHAR(40),
    stretch JSON,
    audio_seconds DOUBLE,
    transcript_key TEXT,
    transcript_sha256 VARCHAR(64),
    coverage DOUBLE,
    words INTEGER,
    language VARCHAR(8),
    content_sha256 VARCHAR(64),
    fingerprint VARCHAR(64),
    reused_from VARCHAR(40),
    speakers JSON,
    complete BOOLEAN,
    expected_seconds DOUBLE,
    warnings JSON,
    decoded_seconds DOUBLE,
    speech_coverage DOUBLE,
    words_without_evidence INTEGER,
    speech_without_words DOUBLE,
    id VARCHAR(40) NOT NULL,
    state VARCHAR(16) NOT NULL,
    queue VARCHAR(1000) NOT NULL,
    attempt INTEGER DEFAULT 0 NOT NULL,
    crashes INTEGER DEFAULT 0 NOT NULL,
    retries INTEGER DEFAULT 0 NOT NULL,
    transient_failures INTEGER DEFAULT 0 NOT NULL,
    ran_seconds DOUBLE DEFAULT 0 NOT NULL,
    lease_owner VARCHAR(200),
    lease_until DATETIME,
    cancel_requested BOOLEAN DEFAULT 0 NOT NULL,
    done_seconds DOUBLE DEFAULT 0 NOT NULL,
    created_at DATETIME NOT NULL,
    queued_at DATETIME NOT NULL,
    started_at DATETIME,
    finished_at DATETIME,
    updated_at DATETIME NOT NULL,
    error_code VARCHAR(64),
    error_message TEXT,
    refusals JSON,
    deadline_rank BIGINT DEFAULT 253402300799 NOT NULL,
    forecast_seconds DOUBLE,
    source_deleted_at DATETIME,
    transcript_deleted_at DATETIME,
    hinted_at DATETIME,
    queue_position BIGINT DEFAULT 0 NOT NULL,
    not_before DATETIME,
    suspects JSON,
    phrases_sha256 VARCHAR(64),
    submission_sha256 VARCHAR(64),
    live_parts JSON,
    CONSTRAINT pk_jobs PRIMARY KEY (id),
    CONSTRAINT ck_jobs_state CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    CONSTRAINT ck_jobs_source_kind CHECK (source_kind IN ('upload', 'file', 's3', 'https', 'live')),
    CONSTRAINT ck_jobs_lease CHECK ((state = 'running') = (lease_owner IS NOT NULL AND lease_until IS NOT NULL)),
    CONSTRAINT ck_jobs_counts CHECK (attempt >= 0 AND crashes >= 0)
);

CREATE INDEX ix_jobs_batch_id_batch_line ON jobs (batch_id, batch_line) WHERE batch_id IS NOT NULL;

CREATE INDEX ix_jobs_created_at_id ON jobs (created_at, id);

CREATE INDEX ix_jobs_due ON jobs (deadline_rank) WHERE state = 'queued' AND deadline_rank < 253402300799;

CREATE INDEX ix_jobs_ended ON jobs (project, state, error_code) WHERE state IN ('done', 'failed', 'cancelled');

CREATE INDEX ix_jobs_kept_source ON jobs (project, finished_at) WHERE source_kind IN ('upload', 'live') AND finished_at IS NOT NULL AND source_deleted_at IS NULL;

CREATE INDEX ix_jobs_kept_transcript ON jobs (project, finished_at) WHERE finished_at IS NOT NULL AND transcript_deleted_at IS NULL;

CREATE INDEX ix_jobs_known_content ON jobs (content_sha256) WHERE state = 'done' AND content_sha256 IS NOT NULL;

CREATE INDEX ix_jobs_known_etag ON jobs (source_etag) WHERE state = 'done' AND source_kind = 's3' AND fingerprint IS NOT NULL;

CREATE INDEX ix_jobs_next ON jobs (queue, project, priority, deadline_rank, queue_position, id) WHERE state = 'queued';

CREATE INDEX ix_jobs_open_in_batch ON jobs (batch_id) WHERE batch_id IS NOT NULL AND state NOT IN ('done', 'failed', 'cancelled');

CREATE INDEX ix_jobs_phrases_sha256 ON jobs (phrases_sha256) WHERE phrases_sha256 IS NOT NULL;

CREATE INDEX ix_jobs_project_created_at_id ON jobs (project, created_at, id);

CREATE INDEX ix_jobs_queued ON jobs (queue, hinted_at) WHERE state = 'queued';

CREATE INDEX ix_jobs_refused ON jobs (pool) WHERE state = 'queued' AND refusals IS NOT NULL;

CREATE INDEX ix_jobs_rerun_of ON jobs (rerun_of) WHERE rerun_of IS NOT NULL;

CREATE INDEX ix_jobs_reused_from ON jobs (reused_from) WHERE reused_from IS NOT NULL;

CREATE INDEX ix_jobs_running ON jobs (pool) WHERE state = 'running';

CREATE INDEX ix_jobs_state_created_at_id ON jobs (state, created_at, id);

CREATE INDEX ix_jobs_submission_sha256 ON jobs (submission_sha256) WHERE submission_sha256 IS NOT NULL;

CREATE INDEX ix_jobs_suspected ON jobs (id) WHERE suspects IS NOT NULL AND state IN ('queued', 'running');

CREATE UNIQUE INDEX ix_jobs_batch_id_custom_id ON jobs (batch_id, custom_id) WHERE batch_id IS NOT NULL;

CREATE TABLE phrase_lists (
    sha256 VARCHAR(64) NOT NULL,
    phrases JSON NOT NULL,
    created_at DATETIME NOT NULL,
    CONSTRAINT pk_phrase_lists PRIMARY KEY (sha256)
);

CREATE TABLE passage_words (
    project VARCHAR(200) NOT NULL,
    sound VARCHAR(64) NOT NULL,
    token VARCHAR(64) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    CONSTRAINT pk_passage_words PRIMARY KEY (project, sound, token, job_id)
)
 WITHOUT ROWID;

CREATE INDEX ix_passage_words_job_id ON passage_words (job_id);

CREATE TABLE locks (
    name VARCHAR(200) NOT NULL,
    owner VARCHAR(200) NOT NULL,
    held_until DATETIME NOT NULL,
    CONSTRAINT pk_locks PRIMARY KEY (name)
);

CREATE TABLE turns (
    pool VARCHAR(200) NOT NULL,
    project VARCHAR(200) NOT NULL,
    share DOUBLE DEFAULT 1 NOT NULL,
    start DOUBLE DEFAULT 0 NOT NULL,
    served DOUBLE DEFAULT 0 NOT NULL,
    refund DOUBLE DEFAULT 0 NOT NULL,
    claims BIGINT DEFAULT 0 NOT NULL,
    mean_seconds DOUBLE,
    updated_at DATETIME NOT NULL,
    CONSTRAINT pk_turns PRIMARY KEY (pool, project)
);

CREATE TABLE turn_charges (
    id INTEGER NOT NULL,
    pool VARCHAR(200) NOT NULL,
    project VARCHAR(200) NOT NULL,
    seconds DOUBLE NOT NULL,
    claims INTEGER NOT NULL,
    CONSTRAINT pk_turn_charges PRIMARY KEY (id)
);

CREATE INDEX ix_turn_charges_pool_project ON turn_charges (pool, project);

CREATE TABLE quota_use (
    project VARCHAR(200) NOT NULL,
    day DATE NOT NULL,
    day_samples BIGINT DEFAULT 0 NOT NULL,
    month_nanos BIGINT DEFAULT 0 NOT NULL,
    before_nanos BIGINT DEFAULT 0 NOT NULL,
    updated_at DATETIME NOT NULL,
    CONSTRAINT pk_quota_use PRIMARY KEY (project)
);

CREATE TABLE receipt_keys (
    id VARCHAR(16) NOT NULL,
    pem TEXT NOT NULL,
    CONSTRAINT pk_receipt_keys PRIMARY KEY (id)
);

CREATE TABLE review_samples (
    project VARCHAR(200) NOT NULL,
    batch VARCHAR(40),
    model VARCHAR(200),
    id VARCHAR(40) NOT NULL,
    population INTEGER NOT NULL,
    margin DOUBLE NOT NULL,
    seed BIGINT NOT NULL,
    size INTEGER NOT NULL,
    created_at DATETIME NOT NULL,
    created_by VARCHAR(200) NOT NULL,
    CONSTRAINT pk_review_samples PRIMARY KEY (id)
);

CREATE INDEX ix_review_samples_project_created_at_id ON review_samples (project, created_at, id);

CREATE TABLE sound_segments (
    id INTEGER NOT NULL,
    project VARCHAR(200) NOT NULL,
    width INTEGER NOT NULL,
    stale BOOLEAN DEFAULT false NOT NULL,
    CONSTRAINT pk_sound_segments PRIMARY KEY (id)
);

CREATE INDEX ix_sound_segments_project ON sound_segments (project);

CREATE TABLE sound_pairs (
    pair INTEGER NOT NULL,
    segment BIGINT NOT NULL,
    bits BLOB NOT NULL,
    CONSTRAINT pk_sound_pairs PRIMARY KEY (pair, segment)
);

CREATE INDEX ix_sound_pairs_segment ON sound_pairs (segment);

CREATE TABLE sources (
    project VARCHAR(200) NOT NULL,
    name TEXT NOT NULL,
    address TEXT NOT NULL,
    request JSON NOT NULL,
    every_seconds DOUBLE NOT NULL,
    settle_seconds DOUBLE NOT NULL,
    key_id VARCHAR(40),
    reads JSON,
    id VARCHAR(40) NOT NULL,
    created_at DATETIME NOT NULL,
    paused_at DATETIME,
    due_at DATETIME NOT NULL,
    lease_owner VARCHAR(200),
    lease_until DATETIME,
    listed_at DATETIME,
    files INTEGER,
    error TEXT,
    failing_since DATETIME,
    CONSTRAINT pk_sources PRIMARY KEY (id),
    CONSTRAINT ck_sources_lease CHECK ((lease_owner IS NULL) = (lease_until IS NULL)),
    CONSTRAINT ck_sources_failing CHECK ((error IS NULL) = (failing_since IS NULL))
);

CREATE INDEX ix_sources_due_at ON sources (due_at);

CREATE INDEX ix_sources_project ON sources (project);

CREATE TABLE uploads (
    project VARCHAR(200) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    name TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    part_bytes BIGINT NOT NULL,
    sha256 VARCHAR(64),
    content_type VARCHAR(100) NOT NULL,
    multipart_id TEXT NOT NULL,
    id VARCHAR(40) NOT NULL,
    state VARCHAR(16) NOT NULL,
    etag TEXT,
    created_at DATETIME NOT NULL,
    expires_at DATETIME NOT NULL,
    CONSTRAINT pk_uploads PRIMARY KEY (id),
    CONSTRAINT ck_uploads_state CHECK (state IN ('open', 'complete', 'used', 'removed'))
);

CREATE INDEX ix_uploads_expires_at ON uploads (expires_at);

CREATE INDEX ix_uploads_project_sha256 ON uploads (project, sha256);

CREATE UNIQUE INDEX ix_uploads_job_id ON uploads (job_id);

CREATE TABLE voices (
    id VARCHAR(40) NOT NULL,
    project VARCHAR(200) NOT NULL,
    name VARCHAR(100) NOT NULL,
    created_at DATETIME NOT NULL,
    CONSTRAINT pk_voices PRIMARY KEY (id),
    CONSTRAINT uq_voices_project_name UNIQUE (project, name)
);

CREATE TABLE webhooks (
    project VARCHAR(200) NOT NULL,
    url TEXT NOT NULL,
    types JSON NOT NULL,
    batch_id VARCHAR(40),
    description TEXT NOT NULL,
    key_id VARCHAR(40),
    id VARCHAR(40) NOT NULL,
    secret TEXT NOT NULL,
    old_secret TEXT,
    old_secret_until DATETIME,
    created_at DATETIME NOT NULL,
    failing_since DATETIME,
    succeeded_at DATETIME,
    disabled_at DATETIME,
    disabled_reason TEXT,
    delivered BIGINT DEFAULT 0 NOT NULL,
    failed_tries BIGINT DEFAULT 0 NOT NULL,
    given_up BIGINT DEFAULT 0 NOT NULL,
    deleted_at DATETIME,
    CONSTRAINT pk_webhooks PRIMARY KEY (id)
);

CREATE INDEX ix_webhooks_project ON webhooks (project);

CREATE TABLE workers (
    id VARCHAR(40) NOT NULL,
    name VARCHAR(200) NOT NULL,
    pool VARCHAR(200) NOT NULL,
    host VARCHAR(200) NOT NULL,
    chip VARCHAR(200) NOT NULL,
    version VARCHAR(64) NOT NULL,
    pid INTEGER NOT NULL,
    models JSON NOT NULL,
    price_per_hour_micros BIGINT NOT NULL,
    concurrency INTEGER NOT NULL,
    gpu_cores INTEGER,
    memory_bytes BIGINT,
    pinned_models JSON,
    backend VARCHAR(16),
    model_facts JSON,
    state VARCHAR(16) NOT NULL,
    reason TEXT,
    started_at DATETIME NOT NULL,
    seen_at DATETIME NOT NULL,
    stopped_at DATETIME,
    busy_ns BIGINT DEFAULT 0 NOT NULL,
    engine_busy_ns BIGINT DEFAULT 0 NOT NULL,
    unbilled_ns BIGINT DEFAULT 0 NOT NULL,
    counts JSON,
    loaded_models JSON,
    quality JSON,
    CONSTRAINT pk_workers PRIMARY KEY (id),
    CONSTRAINT ck_workers_state CHECK (state IN ('starting', 'ready', 'draining', 'resting', 'unwell', 'stopped'))
);

CREATE INDEX ix_workers_seen_at ON workers (seen_at);

CREATE TABLE closures (
    kind VARCHAR(16) NOT NULL,
    start_seconds DOUBLE,
    end_seconds DOUBLE,
    speaker VARCHAR(16),
    until DATETIME,
    reason TEXT NOT NULL,
    created_by VARCHAR(200) NOT NULL,
    id VARCHAR(40) NOT NULL,
    project VARCHAR(200) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    recording VARCHAR(40) NOT NULL,
    content_sha256 VARCHAR(64),
    transcript_sha256 VARCHAR(64),
    speaker_name VARCHAR(200),
    spans JSON NOT NULL,
    created_at DATETIME NOT NULL,
    lifted_at DATETIME,
    lifted_by VARCHAR(200),
    CONSTRAINT pk_closures PRIMARY KEY (id),
    CONSTRAINT fk_closures_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE,
    CONSTRAINT ck_closures_kind CHECK (kind IN ('whole', 'range', 'speaker')),
    CONSTRAINT ck_closures_range CHECK ((kind = 'range') = (start_seconds IS NOT NULL AND end_seconds IS NOT NULL)),
    CONSTRAINT ck_closures_speaker CHECK ((kind = 'speaker') = (speaker IS NOT NULL)),
    CONSTRAINT ck_closures_lifted CHECK ((lifted_at IS NULL) = (lifted_by IS NULL))
);

CREATE INDEX ix_closures_job_id ON closures (job_id);

CREATE INDEX ix_closures_project ON closures (project) WHERE lifted_at IS NULL;

CREATE TABLE openings (
    id VARCHAR(40) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    project VARCHAR(200) NOT NULL,
    "by" VARCHAR(200) NOT NULL,
    way VARCHAR(200) NOT NULL,
    at DATETIME NOT NULL,
    CONSTRAINT pk_openings PRIMARY KEY (id),
    CONSTRAINT fk_openings_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_openings_job_id_at ON openings (job_id, at);

CREATE TABLE not_private (
    recording VARCHAR(40) NOT NULL,
    text_sha256 VARCHAR(64) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    decided_by VARCHAR(200) NOT NULL,
    decided_at DATETIME NOT NULL,
    CONSTRAINT pk_not_private PRIMARY KEY (recording, text_sha256),
    CONSTRAINT fk_not_private_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_not_private_job_id ON not_private (job_id);

CREATE TABLE deletions (
    id VARCHAR(40) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    project VARCHAR(200) NOT NULL,
    content VARCHAR(16) NOT NULL,
    asked_by VARCHAR(200) NOT NULL,
    created_at DATETIME NOT NULL,
    done_at DATETIME,
    due_at DATETIME,
    objects INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT pk_deletions PRIMARY KEY (id),
    CONSTRAINT fk_deletions_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE,
    CONSTRAINT ck_deletions_content CHECK (content IN ('source', 'transcript'))
);

CREATE INDEX ix_deletions_due_at ON deletions (due_at) WHERE due_at IS NOT NULL;

CREATE INDEX ix_deletions_job_id ON deletions (job_id);

CREATE TABLE chunk_sums (
    job_id VARCHAR(40) NOT NULL,
    attempt INTEGER NOT NULL,
    engine_ns BIGINT NOT NULL,
    audio_samples BIGINT NOT NULL,
    CONSTRAINT pk_chunk_sums PRIMARY KEY (job_id, attempt),
    CONSTRAINT fk_chunk_sums_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE edits (
    job_id VARCHAR(40) NOT NULL,
    revision INTEGER NOT NULL,
    first_word INTEGER NOT NULL,
    last_word INTEGER NOT NULL,
    text TEXT,
    speaker VARCHAR(16),
    author VARCHAR(200) NOT NULL,
    created_at DATETIME NOT NULL,
    undoes INTEGER,
    from_job VARCHAR(40),
    from_revision INTEGER,
    words INTEGER NOT NULL,
    names JSON,
    CONSTRAINT pk_edits PRIMARY KEY (job_id, revision),
    CONSTRAINT fk_edits_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_edits_from_job_from_revision ON edits (from_job, from_revision) WHERE from_job IS NOT NULL;

CREATE TABLE former_names (
    job_id VARCHAR(40) NOT NULL,
    number INTEGER NOT NULL,
    transcript_sha256 VARCHAR(64) NOT NULL,
    names JSON NOT NULL,
    CONSTRAINT pk_former_names PRIMARY KEY (job_id, number),
    CONSTRAINT fk_former_names_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE source_links (
    job_id VARCHAR(40) NOT NULL,
    url TEXT,
    error TEXT,
    expires_at DATETIME NOT NULL,
    CONSTRAINT pk_source_links PRIMARY KEY (job_id),
    CONSTRAINT ck_source_links_answer CHECK (url IS NULL OR error IS NULL),
    CONSTRAINT fk_source_links_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE exports (
    job_id VARCHAR(40) NOT NULL,
    format VARCHAR(16) NOT NULL,
    project VARCHAR(200) NOT NULL,
    destination VARCHAR(200) NOT NULL,
    state VARCHAR(16) NOT NULL,
    revision INTEGER DEFAULT 1 NOT NULL,
    tries INTEGER DEFAULT 0 NOT NULL,
    due_at DATETIME NOT NULL,
    error TEXT,
    uri TEXT,
    target VARCHAR(64),
    sha256 VARCHAR(64),
    created_at DATETIME NOT NULL,
    written_at DATETIME,
    CONSTRAINT pk_exports PRIMARY KEY (job_id, format),
    CONSTRAINT fk_exports_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE,
    CONSTRAINT ck_exports_state CHECK (state IN ('pending', 'written', 'failed', 'replaced')),
    CONSTRAINT ck_exports_reason CHECK (state NOT IN ('failed', 'replaced') OR error IS NOT NULL),
    CONSTRAINT ck_exports_written CHECK (state <> 'written' OR (uri IS NOT NULL AND sha256 IS NOT NULL))
);

CREATE INDEX ix_exports_pending ON exports (due_at) WHERE state = 'pending';

CREATE UNIQUE INDEX ix_exports_target ON exports (target);

CREATE TABLE chunks (
    job_id VARCHAR(40) NOT NULL,
    channel INTEGER NOT NULL,
    number INTEGER NOT NULL,
    core_start BIGINT NOT NULL,
    core_end BIGINT NOT NULL,
    start_sample BIGINT NOT NULL,
    end_sample BIGINT NOT NULL,
    words JSON NOT NULL,
    nbest JSON,
    lattice JSON,
    language JSON,
    engine_ns BIGINT NOT NULL,
    tail JSON,
    emissions BLOB,
    attempt INTEGER NOT NULL,
    fingerprint VARCHAR(64),
    created_at DATETIME NOT NULL,
    CONSTRAINT pk_chunks PRIMARY KEY (job_id, channel, number),
    CONSTRAINT ck_chunks_span CHECK (start_sample <= core_start AND core_start < core_end AND core_end <= end_sample),
    CONSTRAINT fk_chunks_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE channel_passes (
    job_id VARCHAR(40) NOT NULL,
    listener VARCHAR(16) NOT NULL,
    channel INTEGER NOT NULL,
    engine_ns BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    fingerprint VARCHAR(64) NOT NULL,
    turns JSON NOT NULL,
    prints JSON,
    frames BLOB,
    languages JSON,
    created_at DATETIME NOT NULL,
    CONSTRAINT pk_channel_passes PRIMARY KEY (job_id, listener, channel, attempt),
    CONSTRAINT fk_channel_passes_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE source_hashes (
    job_id VARCHAR(40) NOT NULL,
    hashes BLOB NOT NULL,
    CONSTRAINT pk_source_hashes PRIMARY KEY (job_id),
    CONSTRAINT fk_source_hashes_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE typescripts (
    job_id VARCHAR(40) NOT NULL,
    words BLOB NOT NULL,
    CONSTRAINT pk_typescripts PRIMARY KEY (job_id),
    CONSTRAINT fk_typescripts_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE passages (
    id INTEGER NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    project VARCHAR(200) NOT NULL,
    channel INTEGER NOT NULL,
    speaker VARCHAR(16),
    own_words INTEGER NOT NULL,
    start_seconds DOUBLE NOT NULL,
    text TEXT NOT NULL,
    times BLOB NOT NULL,
    terms TEXT NOT NULL,
    pairs TEXT,
    alternatives TEXT,
    alternative_terms TEXT,
    CONSTRAINT pk_passages PRIMARY KEY (id),
    CONSTRAINT fk_passages_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_passages_job_id ON passages (job_id);

CREATE INDEX ix_passages_project_id ON passages (project, id);

CREATE VIRTUAL TABLE passage_index USING fts5(terms, content='passages', content_rowid='id', columnsize=0, prefix=3, tokenize="unicode61 remove_diacritics 0 tokenchars '~'");

CREATE TRIGGER passages_inserted AFTER INSERT ON passages BEGIN INSERT INTO passage_index(rowid, terms) VALUES (new.id, new.terms); END;

CREATE TRIGGER passages_deleted AFTER DELETE ON passages BEGIN INSERT INTO passage_index(passage_index, rowid, terms) VALUES ('delete', old.id, old.terms); END;

CREATE VIRTUAL TABLE passage_index_alternatives USING fts5(alternative_terms, content='passages', content_rowid='id', columnsize=0, tokenize="unicode61 remove_diacritics 0 tokenchars '~'");

CREATE TRIGGER passage_alternatives_inserted AFTER INSERT ON passages WHEN new.alternative_terms IS NOT NULL BEGIN INSERT INTO passage_index_alternatives(rowid, alternative_terms) VALUES (new.id, new.alternative_terms); END;

CREATE TRIGGER passage_alternatives_deleted AFTER DELETE ON passages WHEN old.alternative_terms IS NOT NULL BEGIN INSERT INTO passage_index_alternatives(passage_index_alternatives, rowid, alternative_terms) VALUES ('delete', old.id, old.alternative_terms); END;

CREATE TABLE outbox (
    id INTEGER NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    queue VARCHAR(1000) NOT NULL,
    due_at DATETIME NOT NULL,
    CONSTRAINT pk_outbox PRIMARY KEY (id),
    CONSTRAINT fk_outbox_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_outbox_job_id ON outbox (job_id);

CREATE INDEX ix_outbox_queue_due_at_id ON outbox (queue, due_at, id);

CREATE TABLE idempotency (
    project VARCHAR(200) NOT NULL,
    "key" VARCHAR(255) NOT NULL,
    request_hash VARCHAR(64) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    created_at DATETIME NOT NULL,
    CONSTRAINT pk_idempotency PRIMARY KEY (project, "key"),
    CONSTRAINT fk_idempotency_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_idempotency_created_at ON idempotency (created_at);

CREATE INDEX ix_idempotency_job_id ON idempotency (job_id);

CREATE TABLE receipts (
    job_id VARCHAR(40) NOT NULL,
    attempt INTEGER NOT NULL,
    statement TEXT NOT NULL,
    key_id VARCHAR(16),
    signature VARCHAR(128),
    CONSTRAINT pk_receipts PRIMARY KEY (job_id, attempt),
    CONSTRAINT ck_receipts_signed CHECK ((key_id IS NULL) = (signature IS NULL)),
    CONSTRAINT fk_receipts_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE review_passages (
    job_id VARCHAR(40) NOT NULL,
    number INTEGER NOT NULL,
    channel INTEGER NOT NULL,
    start_seconds DOUBLE NOT NULL,
    end_seconds DOUBLE NOT NULL,
    first_word INTEGER NOT NULL,
    last_word INTEGER NOT NULL,
    text TEXT NOT NULL,
    confidence DOUBLE NOT NULL,
    versions DOUBLE NOT NULL,
    speech DOUBLE NOT NULL,
    evidence DOUBLE NOT NULL,
    language DOUBLE NOT NULL,
    project VARCHAR(200) NOT NULL,
    doubt DOUBLE NOT NULL,
    errors INTEGER NOT NULL,
    words INTEGER NOT NULL,
    checked_at DATETIME,
    checked_by VARCHAR(200),
    CONSTRAINT pk_review_passages PRIMARY KEY (job_id, number),
    CONSTRAINT fk_review_passages_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_review_passages_doubt ON review_passages (doubt, job_id, number) WHERE checked_at IS NULL;

CREATE INDEX ix_review_passages_project_doubt ON review_passages (project, doubt, job_id, number) WHERE checked_at IS NULL;

CREATE TABLE review_recordings (
    job_id VARCHAR(40) NOT NULL,
    project VARCHAR(200) NOT NULL,
    passages INTEGER NOT NULL,
    unchecked INTEGER NOT NULL,
    doubt DOUBLE NOT NULL,
    confidence DOUBLE NOT NULL,
    versions DOUBLE NOT NULL,
    speech DOUBLE NOT NULL,
    evidence DOUBLE NOT NULL,
    language DOUBLE NOT NULL,
    CONSTRAINT pk_review_recordings PRIMARY KEY (job_id),
    CONSTRAINT fk_review_recordings_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_review_recordings_doubt ON review_recordings (doubt, job_id) WHERE unchecked > 0;

CREATE INDEX ix_review_recordings_project_doubt ON review_recordings (project, doubt, job_id) WHERE unchecked > 0;

CREATE TABLE review_sample_passages (
    sample_id VARCHAR(40) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    number INTEGER NOT NULL,
    CONSTRAINT pk_review_sample_passages PRIMARY KEY (sample_id, job_id, number),
    CONSTRAINT fk_review_sample_passages_sample_id_review_samples FOREIGN KEY(sample_id) REFERENCES review_samples (id) ON DELETE CASCADE
);

CREATE TABLE sound_blocks (
    job_id VARCHAR(40) NOT NULL,
    channel INTEGER NOT NULL,
    number INTEGER NOT NULL,
    block BLOB NOT NULL,
    CONSTRAINT pk_sound_blocks PRIMARY KEY (job_id, channel, number),
    CONSTRAINT fk_sound_blocks_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE sound_recordings (
    job_id VARCHAR(40) NOT NULL,
    channel INTEGER NOT NULL,
    project VARCHAR(200) NOT NULL,
    width INTEGER NOT NULL,
    pairs BLOB,
    segment BIGINT,
    first_byte INTEGER,
    CONSTRAINT pk_sound_recordings PRIMARY KEY (job_id, channel),
    CONSTRAINT fk_sound_recordings_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_sound_recordings_project_segment ON sound_recordings (project, segment);

CREATE INDEX ix_sound_recordings_segment_first_byte ON sound_recordings (segment, first_byte);

CREATE TABLE source_items (
    id VARCHAR(40) NOT NULL,
    source_id VARCHAR(40) NOT NULL,
    place VARCHAR(200) NOT NULL,
    version VARCHAR(200) NOT NULL,
    state VARCHAR(16) NOT NULL,
    reason TEXT,
    job_id VARCHAR(40),
    created_at DATETIME NOT NULL,
    CONSTRAINT pk_source_items PRIMARY KEY (id),
    CONSTRAINT fk_source_items_source_id_sources FOREIGN KEY(source_id) REFERENCES sources (id) ON DELETE CASCADE,
    CONSTRAINT ck_source_items_state CHECK (state IN ('settling', 'taken', 'skipped', 'refused')),
    CONSTRAINT ck_source_items_job CHECK ((state = 'taken') = (job_id IS NOT NULL))
);

CREATE INDEX ix_source_items_source_id_state_created_at_id ON source_items (source_id, state, created_at, id);

CREATE UNIQUE INDEX ix_source_items_version ON source_items (source_id, place, version);

CREATE TABLE source_marks (
    source_id VARCHAR(40) NOT NULL,
    place TEXT NOT NULL,
    created_at DATETIME NOT NULL,
    CONSTRAINT pk_source_marks PRIMARY KEY (source_id, place),
    CONSTRAINT fk_source_marks_source_id_sources FOREIGN KEY(source_id) REFERENCES sources (id) ON DELETE CASCADE
);

CREATE TABLE voice_prints (
    job_id VARCHAR(40) NOT NULL,
    label VARCHAR(16) NOT NULL,
    encoder VARCHAR(64) NOT NULL,
    print BLOB NOT NULL,
    voice_id VARCHAR(40),
    CONSTRAINT pk_voice_prints PRIMARY KEY (job_id, label),
    CONSTRAINT fk_voice_prints_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE,
    CONSTRAINT fk_voice_prints_voice_id_voices FOREIGN KEY(voice_id) REFERENCES voices (id) ON DELETE SET NULL
);

CREATE INDEX ix_voice_prints_voice_id ON voice_prints (voice_id);

CREATE TABLE webhook_deliveries (
    id VARCHAR(40) NOT NULL,
    webhook_id VARCHAR(40) NOT NULL,
    type VARCHAR(32) NOT NULL,
    body TEXT NOT NULL,
    state VARCHAR(16) NOT NULL,
    tries INTEGER DEFAULT 0 NOT NULL,
    due_at DATETIME NOT NULL,
    log JSON NOT NULL,
    created_at DATETIME NOT NULL,
    ended_at DATETIME,
    CONSTRAINT pk_webhook_deliveries PRIMARY KEY (id),
    CONSTRAINT fk_webhook_deliveries_webhook_id_webhooks FOREIGN KEY(webhook_id) REFERENCES webhooks (id) ON DELETE CASCADE,
    CONSTRAINT ck_webhook_deliveries_state CHECK (state IN ('pending', 'delivered', 'failed'))
);

CREATE INDEX ix_webhook_deliveries_created_at ON webhook_deliveries (created_at);

CREATE INDEX ix_webhook_deliveries_pending ON webhook_deliveries (webhook_id, due_at) WHERE state = 'pending';

CREATE INDEX ix_webhook_deliveries_webhook_id_created_at_id ON webhook_deliveries (webhook_id, created_at, id);

CREATE TABLE cost_lines (
    job_id VARCHAR(40) NOT NULL,
    attempt INTEGER NOT NULL,
    worker_id VARCHAR(40) NOT NULL,
    day DATE NOT NULL,
    price_per_hour_micros BIGINT NOT NULL,
    wasted BOOLEAN NOT NULL,
    model VARCHAR(200) NOT NULL,
    pool VARCHAR(200) NOT NULL,
    project VARCHAR(200) NOT NULL,
    engine_ns BIGINT NOT NULL,
    audio_samples BIGINT NOT NULL,
    cost_nanos BIGINT NOT NULL,
    updated_at DATETIME NOT NULL,
    key_id VARCHAR(40),
    batch_id VARCHAR(40),
    tags JSON,
    CONSTRAINT pk_cost_lines PRIMARY KEY (job_id, attempt, worker_id, day, price_per_hour_micros, wasted),
    CONSTRAINT ck_cost_lines_amounts CHECK (engine_ns >= 0 AND audio_samples >= 0 AND cost_nanos >= 0),
    CONSTRAINT fk_cost_lines_worker_id_workers FOREIGN KEY(worker_id) REFERENCES workers (id)
);

CREATE INDEX ix_cost_lines_day ON cost_lines (day);

-- postgresql

CREATE TABLE api_keys (
    id VARCHAR(40) NOT NULL,
    name VARCHAR(200) NOT NULL,
    project VARCHAR(200),
    scopes JSON NOT NULL,
    sources JSON,
    sha256 VARCHAR(64) NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    used_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_api_keys PRIMARY KEY (id)
);

CREATE TABLE audits (
    id VARCHAR(40) NOT NULL,
    breaches JSON NOT NULL,
    looked_at JSON NOT NULL,
    objects BOOLEAN NOT NULL,
    version VARCHAR(64) NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_audits PRIMARY KEY (id)
);

CREATE INDEX ix_audits_ended_at ON audits (ended_at);

CREATE TABLE system_settings (
    name VARCHAR(200) NOT NULL,
    value JSON NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_system_settings PRIMARY KEY (name)
);

CREATE TABLE counters (
    name VARCHAR(200) NOT NULL,
    label VARCHAR(200) NOT NULL,
    value BIGINT NOT NULL,
    CONSTRAINT pk_counters PRIMARY KEY (name, label)
);

CREATE TABLE batches (
    project VARCHAR(200) NOT NULL,
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    reuse BOOLEAN NOT NULL,
    request_hash VARCHAR(64) NOT NULL,
    idempotency_key VARCHAR(255),
    key_id VARCHAR(40),
    priority SMALLINT DEFAULT 1 NOT NULL,
    deadline TIMESTAMP WITH TIME ZONE,
    id VARCHAR(40) NOT NULL,
    accepted INTEGER DEFAULT 0 NOT NULL,
    lines INTEGER,
    bad INTEGER DEFAULT 0 NOT NULL,
    bad_lines JSON NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    cancelled_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    late BOOLEAN DEFAULT false NOT NULL,
    expected_at TIMESTAMP WITH TIME ZONE,
    expected_basis TEXT,
    unchanged INTEGER DEFAULT 0 NOT NULL,
    skipped INTEGER DEFAULT 0 NOT NULL,
    skipped_files JSON NOT NULL,
    CONSTRAINT pk_batches PRIMARY KEY (id),
    CONSTRAINT ck_batches_counts CHECK (accepted >= 0 AND bad >= 0)
);

CREATE INDEX ix_batches_created_at_id ON batches (created_at, id);

CREATE INDEX ix_batches_deadline ON batches (deadline) WHERE deadline IS NOT NULL;

CREATE INDEX ix_batches_project_created_at_id ON batches (project, created_at, id);

CREATE UNIQUE INDEX ix_batches_project_idempotency_key ON batches (project, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE TABLE event_inbox (
    id BIGSERIAL NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    type VARCHAR(32) NOT NULL,
    project VARCHAR(200) NOT NULL,
    job_id VARCHAR(40),
    batch_id VARCHAR(40),
    custom_id VARCHAR(200),
    data JSON NOT NULL,
    CONSTRAINT pk_event_inbox PRIMARY KEY (id)
);

CREATE TABLE events (
    id BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    type VARCHAR(32) NOT NULL,
    project VARCHAR(200) NOT NULL,
    job_id VARCHAR(40),
    batch_id VARCHAR(40),
    custom_id VARCHAR(200),
    data JSON NOT NULL,
    CONSTRAINT pk_events PRIMARY KEY (id)
);

CREATE INDEX ix_events_batch_id_id ON events (batch_id, id) WHERE batch_id IS NOT NULL;

CREATE INDEX ix_events_job_id_id ON events (job_id, id) WHERE job_id IS NOT NULL;

CREATE TABLE event_position (
    name VARCHAR(200) NOT NULL,
    value BIGINT NOT NULL,
    CONSTRAINT pk_event_position PRIMARY KEY (name)
);

CREATE TABLE connections (
    project VARCHAR(200) NOT NULL,
    name VARCHAR(64) NOT NULL,
    endpoint TEXT,
    region VARCHAR(64) NOT NULL,
    prefix TEXT NOT NULL,
    key_id TEXT NOT NULL,
    secret TEXT NOT NULL,
    access VARCHAR(16) NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_connections PRIMARY KEY (project, name),
    CONSTRAINT ck_connections_access CHECK (access IN ('read', 'write', 'both'))
);

CREATE TABLE glossaries (
    project VARCHAR(200) NOT NULL,
    name VARCHAR(64) NOT NULL,
    version INTEGER NOT NULL,
    sha256 VARCHAR(64) NOT NULL,
    count INTEGER NOT NULL,
    weight DOUBLE PRECISION NOT NULL,
    auto_add_after INTEGER,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    created_by VARCHAR(200) NOT NULL,
    CONSTRAINT pk_glossaries PRIMARY KEY (project, name, version)
);

CREATE INDEX ix_glossaries_sha256 ON glossaries (sha256);

CREATE TABLE language_models (
    project VARCHAR(200) NOT NULL,
    name VARCHAR(64) NOT NULL,
    version INTEGER NOT NULL,
    sha256 VARCHAR(64) NOT NULL,
    size BIGINT NOT NULL,
    ngram_order INTEGER NOT NULL,
    ngrams BIGINT NOT NULL,
    model VARCHAR(200),
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    created_by VARCHAR(200) NOT NULL,
    CONSTRAINT pk_language_models PRIMARY KEY (project, name, version)
);

CREATE INDEX ix_language_models_sha256 ON language_models (sha256);

CREATE TABLE jobs (
    source_kind VARCHAR(16) NOT NULL,
    source_uri TEXT NOT NULL,
    source_size BIGINT,
    source_etag TEXT,
    source_connection VARCHAR(64),
    options JSON NOT NULL,
    name TEXT NOT NULL,
    project VARCHAR(200) NOT NULL,
    pool VARCHAR(200),
    worker VARCHAR(200),
    reuse BOOLEAN DEFAULT false NOT NULL,
    batch_id VARCHAR(40),
    batch_line INTEGER,
    custom_id VARCHAR(200),
    tags JSON,
    key_id VARCHAR(40),
    traceparent VARCHAR(55),
    priority SMALLINT DEFAULT 1 NOT NULL,
    deadline TIMESTAMP WITH TIME ZONE,
    output JSON,
    rerun_of VARCHAR(40),
    stretch JSON,
    audio_seconds DOUBLE PRECISION,
    transcript_key TEXT,
    transcript_sha256 VARCHAR(64),
    coverage DOUBLE PRECISION,
    words INTEGER,
    language VARCHAR(8),
    content_sha256 VARCHAR(64),
    fingerprint VARCHAR(64),
    reused_from VARCHAR(40),
    speakers JSON,
    complete BOOLEAN,
    expected_seconds DOUBLE PRECISION,
    warnings JSON,
    decoded_seconds DOUBLE PRECISION,
    speech_coverage DOUBLE PRECISION,
    words_without_evidence INTEGER,
    speech_without_words DOUBLE PRECISION,
    id VARCHAR(40) NOT NULL,
    state VARCHAR(16) NOT NULL,
    queue VARCHAR(1000) NOT NULL,
    attempt INTEGER DEFAULT 0 NOT NULL,
    crashes INTEGER DEFAULT 0 NOT NULL,
    retries INTEGER DEFAULT 0 NOT NULL,
    transient_failures INTEGER DEFAULT 0 NOT NULL,
    ran_seconds DOUBLE PRECISION DEFAULT 0 NOT NULL,
    lease_owner VARCHAR(200),
    lease_until TIMESTAMP WITH TIME ZONE,
    cancel_requested BOOLEAN DEFAULT false NOT NULL,
    done_seconds DOUBLE PRECISION DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    queued_at TIMESTAMP WITH TIME ZONE NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    error_code VARCHAR(64),
    error_message TEXT,
    refusals JSON,
    deadline_rank BIGINT DEFAULT 253402300799 NOT NULL,
    forecast_seconds DOUBLE PRECISION,
    source_deleted_at TIMESTAMP WITH TIME ZONE,
    transcript_deleted_at TIMESTAMP WITH TIME ZONE,
    hinted_at TIMESTAMP WITH TIME ZONE,
    queue_position BIGINT DEFAULT 0 NOT NULL,
    not_before TIMESTAMP WITH TIME ZONE,
    suspects JSON,
    phrases_sha256 VARCHAR(64),
    submission_sha256 VARCHAR(64),
    live_parts JSON,
    CONSTRAINT pk_jobs PRIMARY KEY (id),
    CONSTRAINT ck_jobs_state CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    CONSTRAINT ck_jobs_source_kind CHECK (source_kind IN ('upload', 'file', 's3', 'https', 'live')),
    CONSTRAINT ck_jobs_lease CHECK ((state = 'running') = (lease_owner IS NOT NULL AND lease_until IS NOT NULL)),
    CONSTRAINT ck_jobs_counts CHECK (attempt >= 0 AND crashes >= 0)
);

CREATE INDEX ix_jobs_batch_id_batch_line ON jobs (batch_id, batch_line) WHERE batch_id IS NOT NULL;

CREATE INDEX ix_jobs_created_at_id ON jobs (created_at, id);

CREATE INDEX ix_jobs_due ON jobs (deadline_rank) WHERE state = 'queued' AND deadline_rank < 253402300799;

CREATE INDEX ix_jobs_ended ON jobs (project, state, error_code) WHERE state IN ('done', 'failed', 'cancelled');

CREATE INDEX ix_jobs_kept_source ON jobs (project, finished_at) WHERE source_kind IN ('upload', 'live') AND finished_at IS NOT NULL AND source_deleted_at IS NULL;

CREATE INDEX ix_jobs_kept_transcript ON jobs (project, finished_at) WHERE finished_at IS NOT NULL AND transcript_deleted_at IS NULL;

CREATE INDEX ix_jobs_known_content ON jobs (content_sha256) WHERE state = 'done' AND content_sha256 IS NOT NULL;

CREATE INDEX ix_jobs_known_etag ON jobs (source_etag) WHERE state = 'done' AND source_kind = 's3' AND fingerprint IS NOT NULL;

CREATE INDEX ix_jobs_next ON jobs (queue, project, priority, deadline_rank, queue_position, id) WHERE state = 'queued';

CREATE INDEX ix_jobs_open_in_batch ON jobs (batch_id) WHERE batch_id IS NOT NULL AND state NOT IN ('done', 'failed', 'cancelled');

CREATE INDEX ix_jobs_phrases_sha256 ON jobs (phrases_sha256) WHERE phrases_sha256 IS NOT NULL;

CREATE INDEX ix_jobs_project_created_at_id ON jobs (project, created_at, id);

CREATE INDEX ix_jobs_queued ON jobs (queue, hinted_at) WHERE state = 'queued';

CREATE INDEX ix_jobs_refused ON jobs (pool) WHERE state = 'queued' AND refusals IS NOT NULL;

CREATE INDEX ix_jobs_rerun_of ON jobs (rerun_of) WHERE rerun_of IS NOT NULL;

CREATE INDEX ix_jobs_reused_from ON jobs (reused_from) WHERE reused_from IS NOT NULL;

CREATE INDEX ix_jobs_running ON jobs (pool) WHERE state = 'running';

CREATE INDEX ix_jobs_state_created_at_id ON jobs (state, created_at, id);

CREATE INDEX ix_jobs_submission_sha256 ON jobs (submission_sha256) WHERE submission_sha256 IS NOT NULL;

CREATE INDEX ix_jobs_suspected ON jobs (id) WHERE suspects IS NOT NULL AND state IN ('queued', 'running');

CREATE UNIQUE INDEX ix_jobs_batch_id_custom_id ON jobs (batch_id, custom_id) WHERE batch_id IS NOT NULL;

CREATE STATISTICS jobs_model ON (options ->> 'model') FROM jobs;

CREATE TABLE phrase_lists (
    sha256 VARCHAR(64) NOT NULL,
    phrases JSON NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_phrase_lists PRIMARY KEY (sha256)
);

CREATE TABLE passage_words (
    project VARCHAR(200) NOT NULL,
    sound VARCHAR(64) NOT NULL,
    token VARCHAR(64) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    CONSTRAINT pk_passage_words PRIMARY KEY (project, sound, token, job_id)
);

CREATE INDEX ix_passage_words_job_id ON passage_words (job_id);

CREATE TABLE locks (
    name VARCHAR(200) NOT NULL,
    owner VARCHAR(200) NOT NULL,
    held_until TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_locks PRIMARY KEY (name)
);

CREATE TABLE turns (
    pool VARCHAR(200) NOT NULL,
    project VARCHAR(200) NOT NULL,
    share DOUBLE PRECISION DEFAULT 1 NOT NULL,
    start DOUBLE PRECISION DEFAULT 0 NOT NULL,
    served DOUBLE PRECISION DEFAULT 0 NOT NULL,
    refund DOUBLE PRECISION DEFAULT 0 NOT NULL,
    claims BIGINT DEFAULT 0 NOT NULL,
    mean_seconds DOUBLE PRECISION,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_turns PRIMARY KEY (pool, project)
);

CREATE TABLE turn_charges (
    id BIGSERIAL NOT NULL,
    pool VARCHAR(200) NOT NULL,
    project VARCHAR(200) NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,
    claims INTEGER NOT NULL,
    CONSTRAINT pk_turn_charges PRIMARY KEY (id)
);

CREATE INDEX ix_turn_charges_pool_project ON turn_charges (pool, project);

CREATE TABLE quota_use (
    project VARCHAR(200) NOT NULL,
    day DATE NOT NULL,
    day_samples BIGINT DEFAULT 0 NOT NULL,
    month_nanos BIGINT DEFAULT 0 NOT NULL,
    before_nanos BIGINT DEFAULT 0 NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_quota_use PRIMARY KEY (project)
);

CREATE TABLE receipt_keys (
    id VARCHAR(16) NOT NULL,
    pem TEXT NOT NULL,
    CONSTRAINT pk_receipt_keys PRIMARY KEY (id)
);

CREATE TABLE review_samples (
    project VARCHAR(200) NOT NULL,
    batch VARCHAR(40),
    model VARCHAR(200),
    id VARCHAR(40) NOT NULL,
    population INTEGER NOT NULL,
    margin DOUBLE PRECISION NOT NULL,
    seed BIGINT NOT NULL,
    size INTEGER NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    created_by VARCHAR(200) NOT NULL,
    CONSTRAINT pk_review_samples PRIMARY KEY (id)
);

CREATE INDEX ix_review_samples_project_created_at_id ON review_samples (project, created_at, id);

CREATE TABLE sound_segments (
    id BIGSERIAL NOT NULL,
    project VARCHAR(200) NOT NULL,
    width INTEGER NOT NULL,
    stale BOOLEAN DEFAULT false NOT NULL,
    CONSTRAINT pk_sound_segments PRIMARY KEY (id)
);

CREATE INDEX ix_sound_segments_project ON sound_segments (project);

CREATE TABLE sound_pairs (
    pair INTEGER NOT NULL,
    segment BIGINT NOT NULL,
    bits BYTEA NOT NULL,
    CONSTRAINT pk_sound_pairs PRIMARY KEY (pair, segment)
);

CREATE INDEX ix_sound_pairs_segment ON sound_pairs (segment);

ALTER TABLE sound_pairs ALTER COLUMN bits SET STORAGE EXTERNAL, SET (toast_tuple_target = 8160);

CREATE TABLE sources (
    project VARCHAR(200) NOT NULL,
    name TEXT NOT NULL,
    address TEXT NOT NULL,
    request JSON NOT NULL,
    every_seconds DOUBLE PRECISION NOT NULL,
    settle_seconds DOUBLE PRECISION NOT NULL,
    key_id VARCHAR(40),
    reads JSON,
    id VARCHAR(40) NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    paused_at TIMESTAMP WITH TIME ZONE,
    due_at TIMESTAMP WITH TIME ZONE NOT NULL,
    lease_owner VARCHAR(200),
    lease_until TIMESTAMP WITH TIME ZONE,
    listed_at TIMESTAMP WITH TIME ZONE,
    files INTEGER,
    error TEXT,
    failing_since TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_sources PRIMARY KEY (id),
    CONSTRAINT ck_sources_lease CHECK ((lease_owner IS NULL) = (lease_until IS NULL)),
    CONSTRAINT ck_sources_failing CHECK ((error IS NULL) = (failing_since IS NULL))
);

CREATE INDEX ix_sources_due_at ON sources (due_at);

CREATE INDEX ix_sources_project ON sources (project);

CREATE TABLE uploads (
    project VARCHAR(200) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    name TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    part_bytes BIGINT NOT NULL,
    sha256 VARCHAR(64),
    content_type VARCHAR(100) NOT NULL,
    multipart_id TEXT NOT NULL,
    id VARCHAR(40) NOT NULL,
    state VARCHAR(16) NOT NULL,
    etag TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_uploads PRIMARY KEY (id),
    CONSTRAINT ck_uploads_state CHECK (state IN ('open', 'complete', 'used', 'removed'))
);

CREATE INDEX ix_uploads_expires_at ON uploads (expires_at);

CREATE INDEX ix_uploads_project_sha256 ON uploads (project, sha256);

CREATE UNIQUE INDEX ix_uploads_job_id ON uploads (job_id);

CREATE TABLE voices (
    id VARCHAR(40) NOT NULL,
    project VARCHAR(200) NOT NULL,
    name VARCHAR(100) NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_voices PRIMARY KEY (id),
    CONSTRAINT uq_voices_project_name UNIQUE (project, name)
);

CREATE TABLE webhooks (
    project VARCHAR(200) NOT NULL,
    url TEXT NOT NULL,
    types JSON NOT NULL,
    batch_id VARCHAR(40),
    description TEXT NOT NULL,
    key_id VARCHAR(40),
    id VARCHAR(40) NOT NULL,
    secret TEXT NOT NULL,
    old_secret TEXT,
    old_secret_until TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    failing_since TIMESTAMP WITH TIME ZONE,
    succeeded_at TIMESTAMP WITH TIME ZONE,
    disabled_at TIMESTAMP WITH TIME ZONE,
    disabled_reason TEXT,
    delivered BIGINT DEFAULT 0 NOT NULL,
    failed_tries BIGINT DEFAULT 0 NOT NULL,
    given_up BIGINT DEFAULT 0 NOT NULL,
    deleted_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_webhooks PRIMARY KEY (id)
);

CREATE INDEX ix_webhooks_project ON webhooks (project);

CREATE TABLE workers (
    id VARCHAR(40) NOT NULL,
    name VARCHAR(200) NOT NULL,
    pool VARCHAR(200) NOT NULL,
    host VARCHAR(200) NOT NULL,
    chip VARCHAR(200) NOT NULL,
    version VARCHAR(64) NOT NULL,
    pid INTEGER NOT NULL,
    models JSON NOT NULL,
    price_per_hour_micros BIGINT NOT NULL,
    concurrency INTEGER NOT NULL,
    gpu_cores INTEGER,
    memory_bytes BIGINT,
    pinned_models JSON,
    backend VARCHAR(16),
    model_facts JSON,
    state VARCHAR(16) NOT NULL,
    reason TEXT,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    stopped_at TIMESTAMP WITH TIME ZONE,
    busy_ns BIGINT DEFAULT 0 NOT NULL,
    engine_busy_ns BIGINT DEFAULT 0 NOT NULL,
    unbilled_ns BIGINT DEFAULT 0 NOT NULL,
    counts JSON,
    loaded_models JSON,
    quality JSON,
    CONSTRAINT pk_workers PRIMARY KEY (id),
    CONSTRAINT ck_workers_state CHECK (state IN ('starting', 'ready', 'draining', 'resting', 'unwell', 'stopped'))
);

CREATE INDEX ix_workers_seen_at ON workers (seen_at);

CREATE TABLE closures (
    kind VARCHAR(16) NOT NULL,
    start_seconds DOUBLE PRECISION,
    end_seconds DOUBLE PRECISION,
    speaker VARCHAR(16),
    until TIMESTAMP WITH TIME ZONE,
    reason TEXT NOT NULL,
    created_by VARCHAR(200) NOT NULL,
    id VARCHAR(40) NOT NULL,
    project VARCHAR(200) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    recording VARCHAR(40) NOT NULL,
    content_sha256 VARCHAR(64),
    transcript_sha256 VARCHAR(64),
    speaker_name VARCHAR(200),
    spans JSON NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    lifted_at TIMESTAMP WITH TIME ZONE,
    lifted_by VARCHAR(200),
    CONSTRAINT pk_closures PRIMARY KEY (id),
    CONSTRAINT fk_closures_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE,
    CONSTRAINT ck_closures_kind CHECK (kind IN ('whole', 'range', 'speaker')),
    CONSTRAINT ck_closures_range CHECK ((kind = 'range') = (start_seconds IS NOT NULL AND end_seconds IS NOT NULL)),
    CONSTRAINT ck_closures_speaker CHECK ((kind = 'speaker') = (speaker IS NOT NULL)),
    CONSTRAINT ck_closures_lifted CHECK ((lifted_at IS NULL) = (lifted_by IS NULL))
);

CREATE INDEX ix_closures_job_id ON closures (job_id);

CREATE INDEX ix_closures_project ON closures (project) WHERE lifted_at IS NULL;

CREATE TABLE openings (
    id VARCHAR(40) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    project VARCHAR(200) NOT NULL,
    by VARCHAR(200) NOT NULL,
    way VARCHAR(200) NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_openings PRIMARY KEY (id),
    CONSTRAINT fk_openings_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_openings_job_id_at ON openings (job_id, at);

CREATE TABLE not_private (
    recording VARCHAR(40) NOT NULL,
    text_sha256 VARCHAR(64) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    decided_by VARCHAR(200) NOT NULL,
    decided_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_not_private PRIMARY KEY (recording, text_sha256),
    CONSTRAINT fk_not_private_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_not_private_job_id ON not_private (job_id);

CREATE TABLE deletions (
    id VARCHAR(40) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    project VARCHAR(200) NOT NULL,
    content VARCHAR(16) NOT NULL,
    asked_by VARCHAR(200) NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    done_at TIMESTAMP WITH TIME ZONE,
    due_at TIMESTAMP WITH TIME ZONE,
    objects INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT pk_deletions PRIMARY KEY (id),
    CONSTRAINT fk_deletions_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE,
    CONSTRAINT ck_deletions_content CHECK (content IN ('source', 'transcript'))
);

CREATE INDEX ix_deletions_due_at ON deletions (due_at) WHERE due_at IS NOT NULL;

CREATE INDEX ix_deletions_job_id ON deletions (job_id);

CREATE TABLE chunk_sums (
    job_id VARCHAR(40) NOT NULL,
    attempt INTEGER NOT NULL,
    engine_ns BIGINT NOT NULL,
    audio_samples BIGINT NOT NULL,
    CONSTRAINT pk_chunk_sums PRIMARY KEY (job_id, attempt),
    CONSTRAINT fk_chunk_sums_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE edits (
    job_id VARCHAR(40) NOT NULL,
    revision INTEGER NOT NULL,
    first_word INTEGER NOT NULL,
    last_word INTEGER NOT NULL,
    text TEXT,
    speaker VARCHAR(16),
    author VARCHAR(200) NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    undoes INTEGER,
    from_job VARCHAR(40),
    from_revision INTEGER,
    words INTEGER NOT NULL,
    names JSON,
    CONSTRAINT pk_edits PRIMARY KEY (job_id, revision),
    CONSTRAINT fk_edits_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_edits_from_job_from_revision ON edits (from_job, from_revision) WHERE from_job IS NOT NULL;

CREATE TABLE former_names (
    job_id VARCHAR(40) NOT NULL,
    number INTEGER NOT NULL,
    transcript_sha256 VARCHAR(64) NOT NULL,
    names JSON NOT NULL,
    CONSTRAINT pk_former_names PRIMARY KEY (job_id, number),
    CONSTRAINT fk_former_names_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE source_links (
    job_id VARCHAR(40) NOT NULL,
    url TEXT,
    error TEXT,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_source_links PRIMARY KEY (job_id),
    CONSTRAINT ck_source_links_answer CHECK (url IS NULL OR error IS NULL),
    CONSTRAINT fk_source_links_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE exports (
    job_id VARCHAR(40) NOT NULL,
    format VARCHAR(16) NOT NULL,
    project VARCHAR(200) NOT NULL,
    destination VARCHAR(200) NOT NULL,
    state VARCHAR(16) NOT NULL,
    revision INTEGER DEFAULT 1 NOT NULL,
    tries INTEGER DEFAULT 0 NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE NOT NULL,
    error TEXT,
    uri TEXT,
    target VARCHAR(64),
    sha256 VARCHAR(64),
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    written_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_exports PRIMARY KEY (job_id, format),
    CONSTRAINT fk_exports_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE,
    CONSTRAINT ck_exports_state CHECK (state IN ('pending', 'written', 'failed', 'replaced')),
    CONSTRAINT ck_exports_reason CHECK (state NOT IN ('failed', 'replaced') OR error IS NOT NULL),
    CONSTRAINT ck_exports_written CHECK (state <> 'written' OR (uri IS NOT NULL AND sha256 IS NOT NULL))
);

CREATE INDEX ix_exports_pending ON exports (due_at) WHERE state = 'pending';

CREATE UNIQUE INDEX ix_exports_target ON exports (target);

CREATE TABLE chunks (
    job_id VARCHAR(40) NOT NULL,
    channel INTEGER NOT NULL,
    number INTEGER NOT NULL,
    core_start BIGINT NOT NULL,
    core_end BIGINT NOT NULL,
    start_sample BIGINT NOT NULL,
    end_sample BIGINT NOT NULL,
    words JSON NOT NULL,
    nbest JSON,
    lattice JSON,
    language JSON,
    engine_ns BIGINT NOT NULL,
    tail JSON,
    emissions BYTEA,
    attempt INTEGER NOT NULL,
    fingerprint VARCHAR(64),
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_chunks PRIMARY KEY (job_id, channel, number),
    CONSTRAINT ck_chunks_span CHECK (start_sample <= core_start AND core_start < core_end AND core_end <= end_sample),
    CONSTRAINT fk_chunks_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE channel_passes (
    job_id VARCHAR(40) NOT NULL,
    listener VARCHAR(16) NOT NULL,
    channel INTEGER NOT NULL,
    engine_ns BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    fingerprint VARCHAR(64) NOT NULL,
    turns JSON NOT NULL,
    prints JSON,
    frames BYTEA,
    languages JSON,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_channel_passes PRIMARY KEY (job_id, listener, channel, attempt),
    CONSTRAINT fk_channel_passes_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE source_hashes (
    job_id VARCHAR(40) NOT NULL,
    hashes BYTEA NOT NULL,
    CONSTRAINT pk_source_hashes PRIMARY KEY (job_id),
    CONSTRAINT fk_source_hashes_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE typescripts (
    job_id VARCHAR(40) NOT NULL,
    words BYTEA NOT NULL,
    CONSTRAINT pk_typescripts PRIMARY KEY (job_id),
    CONSTRAINT fk_typescripts_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE passages (
    id BIGSERIAL NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    project VARCHAR(200) NOT NULL,
    channel INTEGER NOT NULL,
    speaker VARCHAR(16),
    own_words INTEGER NOT NULL,
    start_seconds DOUBLE PRECISION NOT NULL,
    text TEXT NOT NULL,
    times BYTEA NOT NULL,
    terms TSVECTOR NOT NULL,
    pairs SMALLINT[],
    alternatives TEXT,
    alternative_terms TSVECTOR,
    CONSTRAINT pk_passages PRIMARY KEY (id),
    CONSTRAINT fk_passages_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_passages_alternative_terms ON passages USING gin (alternative_terms) WHERE alternative_terms IS NOT NULL;

CREATE INDEX ix_passages_job_id ON passages (job_id);

CREATE INDEX ix_passages_pairs ON passages USING gin (pairs);

CREATE INDEX ix_passages_project_id ON passages (project, id);

CREATE INDEX ix_passages_terms ON passages USING gin (terms);

CREATE TABLE outbox (
    id BIGSERIAL NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    queue VARCHAR(1000) NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_outbox PRIMARY KEY (id),
    CONSTRAINT fk_outbox_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_outbox_job_id ON outbox (job_id);

CREATE INDEX ix_outbox_queue_due_at_id ON outbox (queue, due_at, id);

CREATE TABLE idempotency (
    project VARCHAR(200) NOT NULL,
    key VARCHAR(255) NOT NULL,
    request_hash VARCHAR(64) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_idempotency PRIMARY KEY (project, key),
    CONSTRAINT fk_idempotency_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_idempotency_created_at ON idempotency (created_at);

CREATE INDEX ix_idempotency_job_id ON idempotency (job_id);

CREATE TABLE receipts (
    job_id VARCHAR(40) NOT NULL,
    attempt INTEGER NOT NULL,
    statement TEXT NOT NULL,
    key_id VARCHAR(16),
    signature VARCHAR(128),
    CONSTRAINT pk_receipts PRIMARY KEY (job_id, attempt),
    CONSTRAINT ck_receipts_signed CHECK ((key_id IS NULL) = (signature IS NULL)),
    CONSTRAINT fk_receipts_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE review_passages (
    job_id VARCHAR(40) NOT NULL,
    number INTEGER NOT NULL,
    channel INTEGER NOT NULL,
    start_seconds DOUBLE PRECISION NOT NULL,
    end_seconds DOUBLE PRECISION NOT NULL,
    first_word INTEGER NOT NULL,
    last_word INTEGER NOT NULL,
    text TEXT NOT NULL,
    confidence DOUBLE PRECISION NOT NULL,
    versions DOUBLE PRECISION NOT NULL,
    speech DOUBLE PRECISION NOT NULL,
    evidence DOUBLE PRECISION NOT NULL,
    language DOUBLE PRECISION NOT NULL,
    project VARCHAR(200) NOT NULL,
    doubt DOUBLE PRECISION NOT NULL,
    errors INTEGER NOT NULL,
    words INTEGER NOT NULL,
    checked_at TIMESTAMP WITH TIME ZONE,
    checked_by VARCHAR(200),
    CONSTRAINT pk_review_passages PRIMARY KEY (job_id, number),
    CONSTRAINT fk_review_passages_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_review_passages_doubt ON review_passages (doubt, job_id, number) WHERE checked_at IS NULL;

CREATE INDEX ix_review_passages_project_doubt ON review_passages (project, doubt, job_id, number) WHERE checked_at IS NULL;

CREATE TABLE review_recordings (
    job_id VARCHAR(40) NOT NULL,
    project VARCHAR(200) NOT NULL,
    passages INTEGER NOT NULL,
    unchecked INTEGER NOT NULL,
    doubt DOUBLE PRECISION NOT NULL,
    confidence DOUBLE PRECISION NOT NULL,
    versions DOUBLE PRECISION NOT NULL,
    speech DOUBLE PRECISION NOT NULL,
    evidence DOUBLE PRECISION NOT NULL,
    language DOUBLE PRECISION NOT NULL,
    CONSTRAINT pk_review_recordings PRIMARY KEY (job_id),
    CONSTRAINT fk_review_recordings_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_review_recordings_doubt ON review_recordings (doubt, job_id) WHERE unchecked > 0;

CREATE INDEX ix_review_recordings_project_doubt ON review_recordings (project, doubt, job_id) WHERE unchecked > 0;

CREATE TABLE review_sample_passages (
    sample_id VARCHAR(40) NOT NULL,
    job_id VARCHAR(40) NOT NULL,
    number INTEGER NOT NULL,
    CONSTRAINT pk_review_sample_passages PRIMARY KEY (sample_id, job_id, number),
    CONSTRAINT fk_review_sample_passages_sample_id_review_samples FOREIGN KEY(sample_id) REFERENCES review_samples (id) ON DELETE CASCADE
);

CREATE TABLE sound_blocks (
    job_id VARCHAR(40) NOT NULL,
    channel INTEGER NOT NULL,
    number INTEGER NOT NULL,
    block BYTEA NOT NULL,
    CONSTRAINT pk_sound_blocks PRIMARY KEY (job_id, channel, number),
    CONSTRAINT fk_sound_blocks_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE TABLE sound_recordings (
    job_id VARCHAR(40) NOT NULL,
    channel INTEGER NOT NULL,
    project VARCHAR(200) NOT NULL,
    width INTEGER NOT NULL,
    pairs BYTEA,
    segment BIGINT,
    first_byte INTEGER,
    CONSTRAINT pk_sound_recordings PRIMARY KEY (job_id, channel),
    CONSTRAINT fk_sound_recordings_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);

CREATE INDEX ix_sound_recordings_project_segment ON sound_recordings (project, segment);

CREATE INDEX ix_sound_recordings_segment_first_byte ON sound_recordings (segment, first_byte);

CREATE TABLE source_items (
    id VARCHAR(40) NOT NULL,
    source_id VARCHAR(40) NOT NULL,
    place VARCHAR(200) NOT NULL,
    version VARCHAR(200) NOT NULL,
    state VARCHAR(16) NOT NULL,
    reason TEXT,
    job_id VARCHAR(40),
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_source_items PRIMARY KEY (id),
    CONSTRAINT fk_source_items_source_id_sources FOREIGN KEY(source_id) REFERENCES sources (id) ON DELETE CASCADE,
    CONSTRAINT ck_source_items_state CHECK (state IN ('settling', 'taken', 'skipped', 'refused')),
    CONSTRAINT ck_source_items_job CHECK ((state = 'taken') = (job_id IS NOT NULL))
);

CREATE INDEX ix_source_items_source_id_state_created_at_id ON source_items (source_id, state, created_at, id);

CREATE UNIQUE INDEX ix_source_items_version ON source_items (source_id, place, version);

CREATE TABLE source_marks (
    source_id VARCHAR(40) NOT NULL,
    place TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_source_marks PRIMARY KEY (source_id, place),
    CONSTRAINT fk_source_marks_source_id_sources FOREIGN KEY(source_id) REFERENCES sources (id) ON DELETE CASCADE
);

CREATE TABLE voice_prints (
    job_id VARCHAR(40) NOT NULL,
    label VARCHAR(16) NOT NULL,
    encoder VARCHAR(64) NOT NULL,
    print BYTEA NOT NULL,
    voice_id VARCHAR(40),
    CONSTRAINT pk_voice_prints PRIMARY KEY (job_id, label),
    CONSTRAINT fk_voice_prints_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE,
    CONSTRAINT fk_voice_prints_voice_id_voices FOREIGN KEY(voice_id) REFERENCES voices (id) ON DELETE SET NULL
);

CREATE INDEX ix_voice_prints_voice_id ON voice_prints (voice_id);

CREATE TABLE webhook_deliveries (
    id VARCHAR(40) NOT NULL,
    webhook_id VARCHAR(40) NOT NULL,
    type VARCHAR(32) NOT NULL,
    body TEXT NOT NULL,
    state VARCHAR(16) NOT NULL,
    tries INTEGER DEFAULT 0 NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE NOT NULL,
    log JSON NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_webhook_deliveries PRIMARY KEY (id),
    CONSTRAINT fk_webhook_deliveries_webhook_id_webhooks FOREIGN KEY(webhook_id) REFERENCES webhooks (id) ON DELETE CASCADE,
    CONSTRAINT ck_webhook_deliveries_state CHECK (state IN ('pending', 'delivered', 'failed'))
);

CREATE INDEX ix_webhook_deliveries_created_at ON webhook_deliveries (created_at);

CREATE INDEX ix_webhook_deliveries_pending ON webhook_deliveries (webhook_id, due_at) WHERE state = 'pending';

CREATE INDEX ix_webhook_deliveries_webhook_id_created_at_id ON webhook_deliveries (webhook_id, created_at, id);

CREATE TABLE cost_lines (
    job_id VARCHAR(40) NOT NULL,
    attempt INTEGER NOT NULL,
    worker_id VARCHAR(40) NOT NULL,
    day DATE NOT NULL,
    price_per_hour_micros BIGINT NOT NULL,
    wasted BOOLEAN NOT NULL,
    model VARCHAR(200) NOT NULL,
    pool VARCHAR(200) NOT NULL,
    project VARCHAR(200) NOT NULL,
    engine_ns BIGINT NOT NULL,
    audio_samples BIGINT NOT NULL,
    cost_nanos BIGINT NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    key_id VARCHAR(40),
    batch_id VARCHAR(40),
    tags JSON,
    CONSTRAINT pk_cost_lines PRIMARY KEY (job_id, attempt, worker_id, day, price_per_hour_micros, wasted),
    CONSTRAINT ck_cost_lines_amounts CHECK (engine_ns >= 0 AND audio_samples >= 0 AND cost_nanos >= 0),
    CONSTRAINT fk_cost_lines_worker_id_workers FOREIGN KEY(worker_id) REFERENCES workers (id)
);

CREATE INDEX ix_cost_lines_day ON cost_lines (day);
