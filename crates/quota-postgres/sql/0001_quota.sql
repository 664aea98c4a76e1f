-- Version 1. Once it has been released it never changes: what is to be different is made by a
-- further file. Nodes of two versions run beside each other while one is replaced, so a function
-- whose parameters or answers change gets a new name.
--
-- Who writes takes locks first, in this order, and so nobody waits in a circle:
--   1. advisory lock (OWLN, node): shared by the node's own transactions, exclusively by whoever
--      gives it another epoch or declares it dead;
--   2. advisory locks (OWLQ, hash of a name) of all principals, and of all capabilities whose
--      running calls are limited, in ascending order of the hash. Different names with the same
--      hash merely wait for each other.
-- All rows of a principal are written under its lock. Times are milliseconds, money is millionths.

-- The processes that count here.
CREATE TABLE owlclaw_quota_node (
    node bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- What only the process knows that registered, so that it finds itself again.
    secret bigint NOT NULL,
    -- Grows with each connection: what an earlier one still sends is refused.
    epoch bigint NOT NULL DEFAULT 1,
    -- Grows while the node lives. Others measure by their own clocks how long it has not.
    beat bigint NOT NULL DEFAULT 0,
    lease_ms bigint NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE owlclaw_quota_principal (
    principal text COLLATE "C" PRIMARY KEY,
    -- The clock when it was last looked at.
    wall_ms bigint NOT NULL,
    -- The time that has passed, which is the clock's until that is set back, and never decreases.
    elapsed_ms bigint NOT NULL,
    month_start_ms bigint NOT NULL,
    month_end_ms bigint NOT NULL,
    spent bigint NOT NULL,
    previous_start_ms bigint,
    previous_spent bigint,
    calls_total bigint NOT NULL,
    reads_total bigint NOT NULL
) WITH (fillfactor = 60);

-- What is counted in windows: a principal's calls (scope 'tool'), its reads ('resource'), and its
-- use of a capability that has limits of its own (the capability's name, which has a '/').
CREATE TABLE owlclaw_quota_counter (
    counter bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    principal text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    -- When it was last used, in the principal's elapsed time.
    used_ms bigint,
    UNIQUE (principal, scope)
) WITH (fillfactor = 60);

-- Span 0 is a minute in seconds, span 1 a day in five minutes. What a window holds is the sum.
CREATE TABLE owlclaw_quota_bucket (
    counter bigint NOT NULL,
    span smallint NOT NULL,
    bucket bigint NOT NULL,
    calls bigint NOT NULL,
    PRIMARY KEY (counter, span, bucket)
) WITH (fillfactor = 60);

-- The calls that run. What they count for has been counted already.
CREATE TABLE owlclaw_quota_reservation (
    node bigint NOT NULL,
    sequence bigint NOT NULL,
    principal text COLLATE "C" NOT NULL,
    capability text COLLATE "C" NOT NULL,
    is_read boolean NOT NULL,
    cost bigint NOT NULL,
    month_start_ms bigint NOT NULL,
    counter bigint NOT NULL,
    own_counter bigint,
    -- When it was counted, in the principal's elapsed time, and when the one before it was.
    at_ms bigint NOT NULL,
    previous_ms bigint,
    PRIMARY KEY (node, sequence)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
CREATE INDEX owlclaw_quota_reservation_principal ON owlclaw_quota_reservation (principal);
CREATE INDEX owlclaw_quota_reservation_capability ON owlclaw_quota_reservation (capability);

-- How long until one more fits below a limit that has been reached.
CREATE FUNCTION owlclaw_quota_wait(
    p_counter bigint, p_span smallint, p_width bigint, p_length bigint, p_elapsed bigint,
    p_total bigint, p_limit bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_bucket bigint;
BEGIN
    IF p_limit <= 0 THEN
        RETURN NULL; -- no time will come
    END IF;
    SELECT b.bucket INTO v_bucket FROM (
        SELECT bucket, sum(calls) OVER (ORDER BY bucket) AS gone FROM owlclaw_quota_bucket
        WHERE counter = p_counter AND span = p_span AND bucket >= (p_elapsed - p_length) / p_width
    ) b WHERE p_total - b.gone < p_limit ORDER BY b.bucket LIMIT 1;
    -- What is in no row yet is counted in the present bucket.
    RETURN (coalesce(v_bucket, p_elapsed / p_width) + 1) * p_width + p_length - p_elapsed;
END $$;

-- Registers a node, or a further connection of one. Waits until nothing that an earlier connection
-- began is going on, after which nothing of it can begin.
CREATE FUNCTION owlclaw_quota_register(
    p_node bigint, p_secret bigint, p_lease_ms bigint, OUT node bigint, OUT epoch bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF p_node IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(1331121230, p_node::int);
        UPDATE owlclaw_quota_node n SET epoch = n.epoch + 1, beat = n.beat + 1
        WHERE n.node = p_node AND n.secret = p_secret RETURNING n.node, n.epoch INTO node, epoch;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO owlclaw_quota_node AS n (secret, lease_ms) VALUES (p_secret, p_lease_ms)
    RETURNING n.node, n.epoch INTO node, epoch;
END $$;

-- Says that a node lives, and tells how often the others have.
CREATE FUNCTION owlclaw_quota_beat(p_node bigint, p_epoch bigint)
RETURNS TABLE (node bigint, beat bigint, lease_ms bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1331121230, p_node::int);
    UPDATE owlclaw_quota_node n SET beat = n.beat + 1 WHERE n.node = p_node AND n.epoch = p_epoch;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'this node is registered no longer' USING ERRCODE = 'OWQ01';
    END IF;
    RETURN QUERY SELECT n.node, n.beat, n.lease_ms FROM owlclaw_quota_node n
        WHERE n.node <> p_node;
END $$;

-- What everybody has used by now, or by the database's clock. `p_month_start` is the month's.
CREATE FUNCTION owlclaw_quota_usage(p_now bigint, p_month_start bigint)
RETURNS TABLE (
    principal text, spent bigint, calls_minute bigint, calls_day bigint,
    reads_minute bigint, reads_day bigint, running bigint, calls_total bigint, reads_total bigint
) LANGUAGE sql STABLE AS $$
    SELECT p.principal,
        CASE WHEN p.month_end_ms <= t.wall THEN 0
            WHEN p.month_start_ms - t.wall <= 32::bigint * 24 * 60 * 60 * 1000 THEN p.spent
            WHEN p.previous_start_ms = p_month_start
                THEN least(p.spent, 9223372036854775807 - p.previous_spent) + p.previous_spent
            ELSE p.spent END,
        coalesce(w.calls_minute, 0)::bigint, coalesce(w.calls_day, 0)::bigint,
        coalesce(w.reads_minute, 0)::bigint, coalesce(w.reads_day, 0)::bigint,
        (SELECT count(*) FROM owlclaw_quota_reservation r
            WHERE r.principal = p.principal AND NOT r.is_read),
        p.calls_total, p.reads_total
    FROM (SELECT coalesce(p_now, floor(extract(epoch FROM now()) * 1000)::bigint) AS now) n
    CROSS JOIN owlclaw_quota_principal p
    CROSS JOIN LATERAL (
        SELECT CASE WHEN p.wall_ms <= n.now OR 5000 < p.wall_ms - n.now THEN n.now
                ELSE p.wall_ms END AS wall,
            p.elapsed_ms + greatest(n.now - p.wall_ms, 0) AS elapsed
    ) t
    LEFT JOIN LATERAL (
        SELECT
            sum(b.calls) FILTER (WHERE c.scope = 'tool' AND b.span = 0) AS calls_minute,
            sum(b.calls) FILTER (WHERE c.scope = 'tool' AND b.span = 1) AS calls_day,
            sum(b.calls) FILTER (WHERE c.scope = 'resource' AND b.span = 0) AS reads_minute,
            sum(b.calls) FILTER (WHERE c.scope = 'resource' AND b.span = 1) AS reads_day
        FROM owlclaw_quota_counter c JOIN owlclaw_quota_bucket b ON b.counter = c.counter
        WHERE c.principal = p.principal AND c.scope IN ('tool', 'resource')
            AND (b.span = 0 AND b.bucket >= (t.elapsed - 60000) / 1000
                OR b.span = 1 AND b.bucket >= (t.elapsed - 86400000) / 300000)
    ) w ON true
    ORDER BY p.principal
$$;
