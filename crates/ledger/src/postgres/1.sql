-- The ledger: what was called, in order and without gaps, by all nodes together. Only ever added to.
CREATE TABLE owlclaw_ledger.entry_group (
    first_sequence bigint PRIMARY KEY,
    count bigint NOT NULL,
    hash bytea NOT NULL,
    body bytea NOT NULL,
    -- By which a group is known that is tried again.
    id uuid NOT NULL UNIQUE,
    node uuid NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- Parts of a body are read by their places in it, which a compressed value would have to be
-- decompressed for.
ALTER TABLE owlclaw_ledger.entry_group ALTER COLUMN body SET STORAGE EXTERNAL;

-- Where the ledger ends. Whoever locks this row may append; the others wait.
CREATE TABLE owlclaw_ledger.tail (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    next_sequence bigint NOT NULL,
    hash bytea NOT NULL,
    -- How often a node has been declared dead, for those who append without asking whether they
    -- are.
    generation bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO owlclaw_ledger.tail (next_sequence, hash, generation)
    VALUES (1, decode(repeat('00', 32), 'hex'), 0);

-- What came of the operations that a server stored last, for when it did not hear.
CREATE TABLE owlclaw_ledger.operation_outcome (
    writer uuid PRIMARY KEY,
    group_id uuid NOT NULL,
    outcomes bytea NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- Servers that append. One without a lease may be declared dead; its open calls are then ended.
CREATE TABLE owlclaw_ledger.node (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL,
    ended_at timestamptz
);
CREATE INDEX node_alive ON owlclaw_ledger.node (lease_until) WHERE ended_at IS NULL;

-- An index to the ledger, made afterwards by whichever node has the time; `indexed` tells how far.
-- A place is a group, and where in its body something begins and how long it is.
CREATE TABLE owlclaw_ledger.indexed (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    through bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO owlclaw_ledger.indexed (through) VALUES (0);

CREATE TABLE owlclaw_ledger.call (
    start_sequence bigint PRIMARY KEY,
    call uuid NOT NULL,
    started_us bigint NOT NULL,
    principal text NOT NULL,
    kind text NOT NULL,
    capability text NOT NULL,
    request_id text NOT NULL,
    trace_id text,
    approval uuid,
    estimated_cost_micros bigint NOT NULL,
    start_group bigint NOT NULL,
    start_offset integer NOT NULL,
    start_length integer NOT NULL,
    arguments_offset integer NOT NULL,
    arguments_length integer NOT NULL,
    end_sequence bigint,
    outcome text,
    reason text,
    cost_micros bigint,
    duration_us bigint,
    -- As far as percentiles tell durations apart.
    duration_rounded bigint,
    end_group bigint,
    end_offset integer,
    end_length integer,
    result_offset integer,
    result_length integer,
    message text
);
CREATE INDEX call_by_id ON owlclaw_ledger.call (call);
CREATE INDEX call_by_time ON owlclaw_ledger.call (started_us, start_sequence);
CREATE INDEX call_by_principal ON owlclaw_ledger.call (principal, started_us, start_sequence);
CREATE INDEX call_by_capability ON owlclaw_ledger.call (capability, started_us, start_sequence);
CREATE INDEX call_by_request ON owlclaw_ledger.call (request_id, started_us);
CREATE INDEX call_by_trace ON owlclaw_ledger.call (trace_id, started_us)
    WHERE trace_id IS NOT NULL;
CREATE INDEX call_by_approval ON owlclaw_ledger.call (approval, started_us)
    WHERE approval IS NOT NULL;
CREATE INDEX call_by_outcome ON owlclaw_ledger.call (outcome, started_us, start_sequence)
    WHERE outcome <> 'succeeded';
CREATE INDEX call_by_reason ON owlclaw_ledger.call (reason, started_us, start_sequence)
    WHERE reason IS NOT NULL;
CREATE INDEX call_open ON owlclaw_ledger.call (start_sequence) WHERE outcome IS NULL;

CREATE TABLE owlclaw_ledger.note (
    sequence bigint PRIMARY KEY,
    at_us bigint NOT NULL,
    kind text NOT NULL,
    actor text NOT NULL,
    subject text NOT NULL,
    note_group bigint NOT NULL,
    note_offset integer NOT NULL,
    note_length integer NOT NULL
);
CREATE INDEX note_by_time ON owlclaw_ledger.note (at_us, sequence);
CREATE INDEX note_by_kind ON owlclaw_ledger.note (kind, at_us, sequence);
CREATE INDEX note_by_subject ON owlclaw_ledger.note (subject, at_us, sequence)
    WHERE subject <> '';

-- What needs the agreement of a person, and calls that must not be made twice.
CREATE TABLE owlclaw_ledger.approval (
    id uuid PRIMARY KEY,
    binding bytea NOT NULL,
    principal text NOT NULL,
    capability text NOT NULL,
    arguments text NOT NULL,
    -- 64 bits without a sign, which PostgreSQL does not have: the large ones are negative.
    policy_version bigint NOT NULL,
    reason text NOT NULL,
    needs text NOT NULL,
    requested_us bigint NOT NULL,
    expires_us bigint NOT NULL,
    state text NOT NULL,
    decided_by text,
    decided_us bigint,
    used_by uuid,
    used_us bigint,
    -- Whether the ledger says of its last decision or expiry.
    noted boolean NOT NULL
);
CREATE INDEX approval_live ON owlclaw_ledger.approval (binding)
    WHERE state IN ('pending', 'approved', 'denied');
CREATE INDEX approval_pending ON owlclaw_ledger.approval (principal) WHERE state = 'pending';
CREATE INDEX approval_by_expiry ON owlclaw_ledger.approval (expires_us);
CREATE INDEX approval_unnoted ON owlclaw_ledger.approval (decided_us) WHERE NOT noted;

CREATE TABLE owlclaw_ledger.idempotency_key (
    principal text NOT NULL,
    key text NOT NULL,
    capability text NOT NULL,
    digest bytea NOT NULL,
    call uuid NOT NULL,
    at_us bigint NOT NULL,
    until_us bigint NOT NULL,
    state text NOT NULL,
    result text,
    PRIMARY KEY (principal, key)
);
CREATE INDEX idempotency_key_by_call ON owlclaw_ledger.idempotency_key (call);
CREATE INDEX idempotency_key_by_expiry ON owlclaw_ledger.idempotency_key (until_us);

-- JSON of which perhaps only the beginning was kept, or that jsonb cannot hold, is a text in an
-- object: one strange call must not keep anybody from reading the others.
CREATE FUNCTION owlclaw_ledger.json_at(body bytea, place integer, length integer) RETURNS jsonb
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    words text;
BEGIN
    IF place IS NULL OR length = 0 THEN
        RETURN NULL;
    END IF;
    words := convert_from(substring(body FROM place + 1 FOR length), 'UTF8');
    RETURN words::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN jsonb_build_object('text', words);
END
$$;

-- The calls that have ended, as OwlClaw's own tools read them: its columns, its words. No model is
-- asked on the way of a call, so the columns about models are empty.
CREATE VIEW owlclaw_ledger.ledger_records AS
SELECT
    call.call AS id,
    'default'::varchar(64) AS tenant_id,
    left(call.principal, 255)::varchar(255) AS agent_id,
    left(call.request_id, 255)::varchar(255) AS run_id,
    left(substring(call.capability FROM position('/' IN call.capability) + 1), 255)::varchar(255)
        AS capability_name,
    'unknown'::varchar(100) AS task_type,
    CASE WHEN jsonb_typeof(input.value) = 'object' THEN input.value
        WHEN input.value IS NULL THEN '{}'::jsonb
        ELSE jsonb_build_object('arguments', input.value) END AS input_params,
    CASE WHEN jsonb_typeof(output.value) = 'object' THEN output.value
        WHEN output.value IS NULL THEN NULL
        ELSE jsonb_build_object('result', output.value) END AS output_result,
    call.reason AS decision_reasoning,
    least(call.duration_us / 1000, 2147483647)::integer AS execution_time_ms,
    ''::varchar(100) AS llm_model,
    0 AS llm_tokens_input,
    0 AS llm_tokens_output,
    least(call.cost_micros / 1000000.0, 999999.9999)::decimal(10, 4) AS estimated_cost,
    (CASE call.outcome
        WHEN 'succeeded' THEN 'success'
        WHEN 'denied' THEN 'blocked'
        WHEN 'timed_out' THEN 'timeout'
        WHEN 'failed' THEN 'error'
        WHEN 'invalid' THEN 'error'
        ELSE 'failure' END)::varchar(32) AS status,
    call.message AS error_message,
    NULL::integer AS migration_weight,
    NULL::varchar(32) AS execution_mode,
    NULL::decimal(5, 4) AS risk_level,
    left(approval.decided_by, 255)::varchar(255) AS approval_by,
    to_timestamp(approval.decided_us / 1000000.0) AS approval_time,
    to_timestamp(call.started_us / 1000000.0) AS created_at
FROM owlclaw_ledger.call
JOIN owlclaw_ledger.entry_group AS begun ON begun.first_sequence = call.start_group
JOIN owlclaw_ledger.entry_group AS ended ON ended.first_sequence = call.end_group
LEFT JOIN owlclaw_ledger.approval ON approval.id = call.approval
CROSS JOIN LATERAL (SELECT owlclaw_ledger.json_at(
    begun.body, call.arguments_offset, call.arguments_length)) AS input (value)
CROSS JOIN LATERAL (SELECT owlclaw_ledger.json_at(
    ended.body, call.result_offset, call.result_length)) AS output (value);
