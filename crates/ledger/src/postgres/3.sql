-- What has been taken out into an archive, and what of it stays. A segment says which entries it has; whoever archives
-- holds a lock of the session.
CREATE TABLE owlclaw_ledger.archived (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- The last entry that was taken out, its hash, and how many rows of calls are gone.
    through bigint NOT NULL,
    hash bytea NOT NULL,
    calls bigint NOT NULL,
    directory text NOT NULL
);
INSERT INTO owlclaw_ledger.archived (through, hash, calls, directory)
    VALUES (0, decode(repeat('00', 32), 'hex'), 0, '');

CREATE TABLE owlclaw_ledger.archive_segment (
    number bigint PRIMARY KEY,
    file text NOT NULL,
    first_sequence bigint NOT NULL,
    last_sequence bigint NOT NULL,
    last_hash bytea NOT NULL,
    -- The first start of its calls, which may be in a segment before.
    first_start bigint NOT NULL,
    from_us bigint NOT NULL,
    until_us bigint NOT NULL,
    deleted_us bigint
);

-- Starts of calls that had not ended in what was taken out, and the node that had them.
CREATE TABLE owlclaw_ledger.carried_start (
    sequence bigint PRIMARY KEY,
    start_group bigint NOT NULL,
    start_offset integer NOT NULL,
    entry bytea NOT NULL,
    node uuid NOT NULL
);

-- Sums of calls that were taken out, by days and, for as long as a budget can depend on them, by quarters of an hour.
CREATE TABLE owlclaw_ledger.carried_day (
    day bigint NOT NULL,
    principal text NOT NULL,
    kind text NOT NULL,
    capability text NOT NULL,
    latest_us bigint NOT NULL,
    used_calls bigint NOT NULL,
    used_micros bigint NOT NULL,
    dearest_micros bigint NOT NULL,
    tally bytea NOT NULL,
    PRIMARY KEY (day, principal, kind, capability)
);
CREATE TABLE owlclaw_ledger.carried_quarter (
    quarter bigint NOT NULL,
    principal text NOT NULL,
    kind text NOT NULL,
    capability text NOT NULL,
    latest_us bigint NOT NULL,
    used_calls bigint NOT NULL,
    used_micros bigint NOT NULL,
    dearest_micros bigint NOT NULL,
    PRIMARY KEY (quarter, principal, kind, capability)
);

CREATE TABLE owlclaw_ledger.legal_hold (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    principal text,
    capability text,
    since_us bigint,
    until_us bigint,
    set_by text NOT NULL,
    reason text NOT NULL,
    set_us bigint NOT NULL
);

-- The last group of a node that was taken out: a server that never heard that it was stored may try it again.
ALTER TABLE owlclaw_ledger.node ADD COLUMN archived_group uuid;
CREATE INDEX node_archived_group ON owlclaw_ledger.node (archived_group) WHERE archived_group IS NOT NULL;

-- A call that began in what was taken out and ended later is still one of these.
CREATE OR REPLACE VIEW owlclaw_ledger.ledger_records AS
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
JOIN owlclaw_ledger.entry_group AS ended ON ended.first_sequence = call.end_group
LEFT JOIN owlclaw_ledger.entry_group AS begun ON begun.first_sequence = call.start_group
LEFT JOIN owlclaw_ledger.carried_start AS carried ON carried.sequence = call.start_sequence
LEFT JOIN owlclaw_ledger.approval ON approval.id = call.approval
CROSS JOIN LATERAL (SELECT owlclaw_ledger.json_at(
    coalesce(begun.body, carried.entry),
    CASE WHEN begun.body IS NULL THEN call.arguments_offset - call.start_offset
        ELSE call.arguments_offset END,
    call.arguments_length)) AS input (value)
CROSS JOIN LATERAL (SELECT owlclaw_ledger.json_at(
    ended.body, call.result_offset, call.result_length)) AS output (value);
