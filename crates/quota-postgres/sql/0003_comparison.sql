-- Version 3: counters are compared with a record of the calls, raised where they are lower, and not
-- counted with after they were emptied.
--
-- One more lock, which whoever raises counters holds for its session: advisory lock (OWLR, 0), 1331121234.

-- One row, which is taken away when a table of counters is emptied, or a client's row is deleted. Without
-- it nothing is decided, until counters have been raised to what the record has.
CREATE TABLE owlclaw_quota_generation (
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO owlclaw_quota_generation DEFAULT VALUES;

CREATE FUNCTION owlclaw_quota_emptied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM owlclaw_quota_generation;
    RETURN NULL;
END $$;

CREATE TRIGGER owlclaw_quota_emptied AFTER TRUNCATE ON owlclaw_quota_principal
    FOR EACH STATEMENT EXECUTE FUNCTION owlclaw_quota_emptied();
CREATE TRIGGER owlclaw_quota_emptied AFTER TRUNCATE ON owlclaw_quota_counter
    FOR EACH STATEMENT EXECUTE FUNCTION owlclaw_quota_emptied();
CREATE TRIGGER owlclaw_quota_emptied AFTER TRUNCATE ON owlclaw_quota_bucket
    FOR EACH STATEMENT EXECUTE FUNCTION owlclaw_quota_emptied();
CREATE TRIGGER owlclaw_quota_emptied AFTER TRUNCATE ON owlclaw_quota_reservation
    FOR EACH STATEMENT EXECUTE FUNCTION owlclaw_quota_emptied();
CREATE TRIGGER owlclaw_quota_emptied AFTER TRUNCATE ON owlclaw_quota_settlement
    FOR EACH STATEMENT EXECUTE FUNCTION owlclaw_quota_emptied();
CREATE TRIGGER owlclaw_quota_emptied AFTER TRUNCATE ON owlclaw_quota_orphan
    FOR EACH STATEMENT EXECUTE FUNCTION owlclaw_quota_emptied();
CREATE TRIGGER owlclaw_quota_emptied AFTER TRUNCATE ON owlclaw_quota_dearest
    FOR EACH STATEMENT EXECUTE FUNCTION owlclaw_quota_emptied();

-- owlclaw_quota_tidy deletes principals of which nothing counts any more, and nobody else deletes any.
CREATE FUNCTION owlclaw_quota_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM owlclaw_quota_generation WHERE EXISTS (
        SELECT 1 FROM gone WHERE gone.wall_ms >=
            extract(epoch FROM clock_timestamp()) * 1000 - 61::bigint * 24 * 60 * 60 * 1000);
    RETURN NULL;
END $$;
CREATE TRIGGER owlclaw_quota_deleted AFTER DELETE ON owlclaw_quota_principal
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION owlclaw_quota_deleted();

-- Each decision settles first, and so this is where it is refused. The locks keep the tables from being
-- emptied between this look and the decision.
ALTER FUNCTION owlclaw_quota_settle(text[]) RENAME TO owlclaw_quota_settle_due;
CREATE FUNCTION owlclaw_quota_settle(p_names text[]) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE owlclaw_quota_principal, owlclaw_quota_counter, owlclaw_quota_bucket,
        owlclaw_quota_reservation IN ROW EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT 1 FROM owlclaw_quota_generation) THEN
        RAISE EXCEPTION 'the counters were emptied' USING ERRCODE = 'OWQ03';
    END IF;
    RETURN owlclaw_quota_settle_due(p_names);
END $$;

-- Counters that are lower than a record of calls that was read before: `s_ended` is what the calls of
-- principals that have ended cost in this month; `w_at` and `w_calls` say when how many calls began, in
-- ascending order of time. A call may begin by the record `p_slack` later than it was counted.
CREATE FUNCTION owlclaw_quota_lower(
    p_now bigint, p_slack bigint, p_month bigint, s_principal text[], s_ended bigint[],
    w_principal text[], w_scope text[], w_at bigint[], w_calls bigint[]
) RETURNS TABLE (principal text, what text, counted bigint, recorded bigint)
LANGUAGE sql STABLE AS $$
    WITH clock AS (
        SELECT coalesce(p_now, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
    ), due AS (
        SELECT s.principal, sum(s.actual::numeric - r.cost) AS more
        FROM owlclaw_quota_settlement s JOIN (
            SELECT node, sequence, cost, month_start_ms FROM owlclaw_quota_reservation
            UNION ALL SELECT node, sequence, cost, month_start_ms FROM owlclaw_quota_orphan
        ) r ON r.node = s.node AND r.sequence = s.sequence
        WHERE r.month_start_ms = p_month GROUP BY s.principal
    ), spent AS (
        SELECT s.principal, s.ended, greatest(CASE p_month
            WHEN p.month_start_ms THEN p.spent::numeric
            WHEN p.previous_start_ms THEN p.spent::numeric + p.previous_spent
            ELSE 0 END + coalesce(d.more, 0), 0) AS counted
        FROM unnest(s_principal, s_ended) s (principal, ended)
        LEFT JOIN owlclaw_quota_principal p ON p.principal = s.principal
        LEFT JOIN due d ON d.principal = s.principal
    ), began AS (
        SELECT w.principal, w.scope, max(w.at) AS last,
            sum(w.calls) FILTER (WHERE w.at >= n.now - 86400000 + p_slack) AS calls
        FROM clock n CROSS JOIN unnest(w_principal, w_scope, w_at, w_calls) w (principal, scope, at, calls)
        GROUP BY w.principal, w.scope
    ), counters AS (
        SELECT g.principal, g.scope, g.last, coalesce(g.calls, 0) AS calls,
            coalesce(k.used_ms - t.elapsed + n.now, 0) AS used,
            coalesce((SELECT sum(b.calls) FROM owlclaw_quota_bucket b WHERE b.counter = k.counter
                AND b.span = 1 AND b.bucket >= (t.elapsed - 86400000) / 300000), 0) AS counted
        FROM began g CROSS JOIN clock n
        LEFT JOIN owlclaw_quota_principal p ON p.principal = g.principal
        LEFT JOIN owlclaw_quota_counter k ON k.principal = g.principal AND k.scope = g.scope
        CROSS JOIN LATERAL (
            SELECT coalesce(p.elapsed_ms + greatest(n.now - p.wall_ms, 0), n.now) AS elapsed
        ) t
    )
    SELECT s.principal, 'budget', s.counted::bigint, s.ended FROM spent s WHERE s.counted < s.ended
    UNION ALL SELECT c.principal, c.scope, c.counted::bigint, c.calls::bigint FROM counters c
        WHERE c.counted < c.calls
    UNION ALL SELECT c.principal, 'last use of ' || c.scope, c.used, c.last FROM counters c
        WHERE c.scope LIKE '%/%' AND c.used < c.last - p_slack
$$;

-- Raises the counters of these principals to what a record of calls has that was read before. What is
-- held for running calls comes on top of what ended ones have cost.
CREATE FUNCTION owlclaw_quota_raise(
    p_now bigint, p_month bigint, p_month_end bigint,
    s_principal text[], s_ended bigint[], s_open bigint[],
    w_principal text[], w_scope text[], w_at bigint[], w_calls bigint[],
    d_principal text[], d_capability text[], d_cost bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_now bigint := coalesce(p_now, floor(extract(epoch FROM clock_timestamp()) * 1000));
    v_lock int;
BEGIN
    FOR v_lock IN SELECT hashtext(l.name) FROM unnest(s_principal) l (name) GROUP BY 1 ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(1331121233, v_lock);
    END LOOP;
    PERFORM owlclaw_quota_settle_due(s_principal);
    INSERT INTO owlclaw_quota_principal
    SELECT s.name, v_now, v_now, p_month, p_month_end, 0, NULL, NULL, 0, 0
    FROM unnest(s_principal) s (name) ON CONFLICT DO NOTHING;
    DELETE FROM owlclaw_quota_dearest d USING owlclaw_quota_principal p
    WHERE d.principal = ANY (s_principal) AND p.principal = d.principal AND p.month_start_ms <> p_month;
    UPDATE owlclaw_quota_principal p SET month_start_ms = p_month, month_end_ms = p_month_end,
        spent = CASE WHEN p.previous_start_ms = p_month
            THEN least(p.spent::numeric + p.previous_spent, 9223372036854775807)::bigint ELSE 0 END,
        previous_start_ms = p.month_start_ms, previous_spent = p.spent
    WHERE p.principal = ANY (s_principal) AND p.month_start_ms <> p_month;
    UPDATE owlclaw_quota_principal p SET spent = least(s.ended::numeric + greatest(s.open, coalesce((
            SELECT sum(r.cost) FROM owlclaw_quota_reservation r
            WHERE r.principal = p.principal AND r.month_start_ms = p_month
        ), 0)), 9223372036854775807)::bigint
    FROM unnest(s_principal, s_ended, s_open) s (principal, ended, open)
    WHERE p.principal = s.principal AND p.spent < s.ended;
    INSERT INTO owlclaw_quota_dearest AS d SELECT * FROM unnest(d_principal, d_capability, d_cost)
    ON CONFLICT (principal, capability) DO UPDATE SET cost = greatest(d.cost, excluded.cost);

    INSERT INTO owlclaw_quota_counter (principal, scope)
    SELECT DISTINCT w.principal, w.scope FROM unnest(w_principal, w_scope) w (principal, scope)
    ON CONFLICT DO NOTHING;
    -- In the time of the principal, which stands still while the clock is set back.
    WITH began AS (
        SELECT k.counter, w.scope, w.calls, t.elapsed,
            least(w.at, v_now) - (v_now - t.elapsed) AS at
        FROM unnest(w_principal, w_scope, w_at, w_calls) w (principal, scope, at, calls)
        JOIN owlclaw_quota_counter k ON k.principal = w.principal AND k.scope = w.scope
        JOIN owlclaw_quota_principal p ON p.principal = w.principal
        CROSS JOIN LATERAL (SELECT p.elapsed_ms + greatest(v_now - p.wall_ms, 0) AS elapsed) t
    ), used AS (
        UPDATE owlclaw_quota_counter k SET used_ms = greatest(coalesce(k.used_ms, u.at), u.at)
        FROM (SELECT b.counter, max(b.at) AS at FROM began b WHERE b.scope LIKE '%/%' GROUP BY 1) u
        WHERE k.counter = u.counter
    )
    INSERT INTO owlclaw_quota_bucket AS b
    SELECT g.counter, s.span, g.at / s.width, sum(g.calls)
    FROM began g
    CROSS JOIN (VALUES (0::smallint, 1000::bigint, 60000), (1::smallint, 300000, 86400000))
        s (span, width, length)
    WHERE g.at >= g.elapsed - s.length
    GROUP BY 1, 2, 3
    ON CONFLICT (counter, span, bucket) DO UPDATE SET calls = greatest(b.calls, excluded.calls);
END $$;
