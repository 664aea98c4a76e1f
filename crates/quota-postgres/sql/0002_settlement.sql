-- Version 2: what calls have cost is settled by the record of their ends, and no budget is spent
-- twice by calls that cost more than was expected.
--
-- The locks are those of version 1. The rows of the tables here that are about a principal are
-- written under its lock, but for owlclaw_quota_settlement, to which rows are added without any.

-- What calls have cost, from the transaction that has put their ends on record. A row is taken away
-- by whoever looks at the principal next, before anything is decided for it; so what has been
-- answered counts, on every node, whatever becomes of the node that answered.
CREATE TABLE owlclaw_quota_settlement (
    principal text COLLATE "C" NOT NULL,
    node bigint NOT NULL,
    sequence bigint NOT NULL,
    actual bigint NOT NULL,
    PRIMARY KEY (principal, node, sequence)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- Of calls under a budget, what was expected; `cost` is what is held for them, which may be more.
ALTER TABLE owlclaw_quota_reservation ADD COLUMN estimate bigint;

-- Reservations of nodes that are dead. They run no longer, and count as what was expected, until
-- the record says what they have cost.
CREATE TABLE owlclaw_quota_orphan (LIKE owlclaw_quota_reservation);
ALTER TABLE owlclaw_quota_orphan ADD PRIMARY KEY (node, sequence);

-- What the dearest call of a tool has cost this month, where it was more than was expected.
CREATE TABLE owlclaw_quota_dearest (
    principal text COLLATE "C" NOT NULL,
    capability text COLLATE "C" NOT NULL,
    cost bigint NOT NULL,
    PRIMARY KEY (principal, capability)
);

-- Replaces what was held for a call by what it has cost, unless the month is over.
CREATE FUNCTION owlclaw_quota_charge(
    p_principal text, p_capability text, p_month bigint, p_held bigint, p_estimate bigint,
    p_actual bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE owlclaw_quota_principal p SET spent =
        least(greatest(p.spent - p_held, 0), 9223372036854775807 - p_actual) + p_actual
    WHERE p.principal = p_principal AND p.month_start_ms = p_month;
    IF FOUND AND p_estimate < p_actual THEN
        INSERT INTO owlclaw_quota_dearest AS d VALUES (p_principal, p_capability, p_actual)
        ON CONFLICT (principal, capability) DO UPDATE SET cost = greatest(d.cost, excluded.cost);
    END IF;
END $$;

-- Settles what is on record of calls of these principals, whose locks the caller holds.
CREATE FUNCTION owlclaw_quota_settle(p_names text[]) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_due record;
    v_settled bigint := 0;
BEGIN
    FOR v_due IN
        DELETE FROM owlclaw_quota_settlement s WHERE s.principal = ANY (p_names)
        RETURNING s.node, s.sequence, s.actual
    LOOP
        v_settled := v_settled + 1;
        PERFORM owlclaw_quota_charge(r.principal, r.capability, r.month_start_ms, r.cost,
            r.estimate, v_due.actual)
        FROM owlclaw_quota_reservation r WHERE r.node = v_due.node AND r.sequence = v_due.sequence;
        IF FOUND THEN
            DELETE FROM owlclaw_quota_reservation r
            WHERE r.node = v_due.node AND r.sequence = v_due.sequence;
        ELSE
            PERFORM owlclaw_quota_charge(o.principal, o.capability, o.month_start_ms, o.cost,
                o.estimate, v_due.actual)
            FROM owlclaw_quota_orphan o WHERE o.node = v_due.node AND o.sequence = v_due.sequence;
            DELETE FROM owlclaw_quota_orphan o
            WHERE o.node = v_due.node AND o.sequence = v_due.sequence;
        END IF;
    END LOOP;
    RETURN v_settled;
END $$;

-- Settles what is on record of anybody's calls, of at most so many principals; tells of how many
-- calls. Nobody's decision waits for it: it is for reports, and so that nothing piles up.
CREATE FUNCTION owlclaw_quota_settle_all(p_most int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_names text[] := ARRAY(SELECT DISTINCT s.principal FROM owlclaw_quota_settlement s
        LIMIT p_most);
    v_lock int;
BEGIN
    FOR v_lock IN SELECT hashtext(l.name) FROM unnest(v_names) l (name) GROUP BY 1 ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(1331121233, v_lock);
    END LOOP;
    RETURN owlclaw_quota_settle(v_names);
END $$;

-- Ends reservations, then decides requests, each entirely or not at all. One call is one
-- transaction. A node whose epoch is another one gets an error and has changed nothing.
--
-- Before anything else, what calls of these principals have cost is settled as far as it is on
-- record (owlclaw_quota_settlement).
--
-- Endings: without an actual cost the reservation is released, and nothing was used up. Those that
-- are not there (any more) change nothing, so an ending may be sent again; one with the sequence 0
-- only has its principal looked at.
--
-- Requests come ordered by principal, kind and capability. Without a sequence they only ask what
-- is left. Without a time the database's clock says when it is. The four edges of months are the
-- starts of the caller's last month, this one, the next one, and the one after.
--
-- Verdicts: 0 refused, 1 admitted, 2 the time is in none of the three months.
CREATE FUNCTION owlclaw_quota_decide(
    p_node bigint, p_epoch bigint,
    e_sequence bigint[], e_principal text[], e_actual bigint[],
    r_sequence bigint[], r_principal text[], r_capability text[], r_read boolean[], r_cost bigint[],
    r_may_cost boolean[], r_budget bigint[], r_minute bigint[], r_day bigint[], r_own_minute bigint[], r_own_day bigint[],
    r_cooldown bigint[], r_running bigint[], r_capability_running bigint[], r_now bigint[],
    r_edge0 bigint[], r_edge1 bigint[], r_edge2 bigint[], r_edge3 bigint[]
) RETURNS TABLE (
    verdict smallint, wall_ms bigint, month_end_ms bigint, spent bigint, held bigint,
    minute bigint, minute_resets bigint, minute_wait bigint,
    day bigint, day_resets bigint, day_wait bigint,
    own_minute bigint, own_minute_resets bigint, own_minute_wait bigint,
    own_day bigint, own_day_resets bigint, own_day_wait bigint,
    cooldown_wait bigint, running bigint, capability_running bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c_node CONSTANT int := 1331121230; -- OWLN
    c_name CONSTANT int := 1331121233; -- OWLQ
    c_most CONSTANT bigint := 9223372036854775807;
    c_jitter CONSTANT bigint := 5000;
    c_month_ahead CONSTANT bigint := 32::bigint * 24 * 60 * 60 * 1000;
    c_minute CONSTANT bigint := 60000;
    c_minute_width CONSTANT bigint := 1000;
    c_day CONSTANT bigint := 24 * 60 * 60 * 1000;
    c_day_width CONSTANT bigint := 5 * 60 * 1000;
    v_epoch bigint;
    v_lock int;
    v_ending record;
    v_clock bigint;
    -- The principal, its kind and the time that are being looked at.
    v_principal text;
    v_read boolean;
    v_now bigint;
    v_known boolean;
    v_changed boolean := false;
    v_wall bigint;
    v_elapsed bigint;
    v_month_start bigint;
    v_month_end bigint;
    v_spent bigint;
    v_previous_start bigint;
    v_previous_spent bigint;
    v_calls_total bigint;
    v_reads_total bigint;
    v_counter bigint;
    v_minute bigint;
    v_minute_last bigint;
    v_day bigint;
    v_day_last bigint;
    v_pending bigint := 0;
    v_running bigint;
    -- The capability.
    v_capability text;
    v_own_counter bigint;
    v_own_used bigint;
    v_own_minute bigint;
    v_own_minute_last bigint;
    v_own_day bigint;
    v_own_day_last bigint;
    v_own_pending bigint := 0;
    v_capability_running bigint;
    -- One request.
    v_count int := cardinality(r_principal);
    v_i int := 1;
    v_cost bigint;
    v_dearest bigint;
    v_dearest_loaded boolean := false;
    v_held bigint;
    v_fits boolean;
    v_own boolean;
    v_own_loaded boolean := false;
    v_ok boolean;
    v_cooldown_wait bigint;
    v_over boolean;
    -- Waits that were worked out already, as long as the totals stay.
    m_minute bigint;
    m_minute_limit bigint;
    m_day bigint;
    m_day_limit bigint;
    m_own_minute bigint;
    m_own_minute_limit bigint;
    m_own_day bigint;
    m_own_day_limit bigint;
BEGIN
    -- Each statement must see what was committed before it took its locks.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'quotas are counted at READ COMMITTED' USING ERRCODE = 'OWQ02';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(c_node, p_node::int);
    SELECT n.epoch INTO v_epoch FROM owlclaw_quota_node n WHERE n.node = p_node;
    IF v_epoch IS DISTINCT FROM p_epoch THEN
        RAISE EXCEPTION 'this node is registered no longer' USING ERRCODE = 'OWQ01';
    END IF;
    FOR v_lock IN
        SELECT hashtext(l.name) FROM (
            SELECT p.name FROM unnest(e_principal) p (name)
            UNION SELECT p.name FROM unnest(r_principal) p (name)
            UNION SELECT c.name FROM unnest(r_capability, r_capability_running) c (name, running)
            WHERE c.running IS NOT NULL
        ) l GROUP BY 1 ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock(c_name, v_lock);
    END LOOP;

    PERFORM owlclaw_quota_settle(e_principal || r_principal);
    FOR v_ending IN
        DELETE FROM owlclaw_quota_reservation r
        USING unnest(e_sequence, e_actual) e (sequence, actual)
        WHERE r.node = p_node AND r.sequence = e.sequence
        RETURNING r.*, e.actual
    LOOP
        IF v_ending.actual IS NULL THEN
            UPDATE owlclaw_quota_principal p SET
                spent = CASE WHEN p.month_start_ms = v_ending.month_start_ms
                    THEN greatest(p.spent - v_ending.cost, 0) ELSE p.spent END,
                calls_total = p.calls_total - (NOT v_ending.is_read)::int,
                reads_total = p.reads_total - v_ending.is_read::int
            WHERE p.principal = v_ending.principal;
            DELETE FROM owlclaw_quota_bucket b
            WHERE b.counter IN (v_ending.counter, v_ending.own_counter) AND b.calls <= 1
                AND (b.span = 0 AND b.bucket = v_ending.at_ms / c_minute_width
                    OR b.span = 1 AND b.bucket = v_ending.at_ms / c_day_width);
            UPDATE owlclaw_quota_bucket b SET calls = b.calls - 1
            WHERE b.counter IN (v_ending.counter, v_ending.own_counter)
                AND (b.span = 0 AND b.bucket = v_ending.at_ms / c_minute_width
                    OR b.span = 1 AND b.bucket = v_ending.at_ms / c_day_width);
            IF v_ending.own_counter IS NOT NULL THEN
                -- Takes it out of the chain of uses: who came after it comes after who came before.
                UPDATE owlclaw_quota_counter c SET used_ms = v_ending.previous_ms
                WHERE c.counter = v_ending.own_counter AND c.used_ms = v_ending.at_ms;
                UPDATE owlclaw_quota_reservation r SET previous_ms = v_ending.previous_ms
                WHERE r.principal = v_ending.principal AND r.own_counter = v_ending.own_counter
                    AND r.previous_ms = v_ending.at_ms;
            END IF;
        ELSIF v_ending.actual <> v_ending.cost THEN
            PERFORM owlclaw_quota_charge(v_ending.principal, v_ending.capability,
                v_ending.month_start_ms, v_ending.cost, v_ending.estimate, v_ending.actual);
        END IF;
    END LOOP;

    v_clock := floor(extract(epoch FROM clock_timestamp()) * 1000);
    WHILE v_i <= v_count + 1 LOOP
        -- What was counted is written down when the next request is for something else.
        IF v_own_pending > 0 AND (v_i > v_count OR r_capability[v_i] IS DISTINCT FROM v_capability
            OR r_principal[v_i] IS DISTINCT FROM v_principal
            OR r_read[v_i] IS DISTINCT FROM v_read
            OR coalesce(r_now[v_i], v_clock) IS DISTINCT FROM v_now)
        THEN
            INSERT INTO owlclaw_quota_bucket AS b VALUES
                (v_own_counter, 0, v_elapsed / c_minute_width, v_own_pending),
                (v_own_counter, 1, v_elapsed / c_day_width, v_own_pending)
            ON CONFLICT (counter, span, bucket) DO UPDATE SET calls = b.calls + excluded.calls;
            UPDATE owlclaw_quota_counter SET used_ms = v_own_used WHERE counter = v_own_counter;
            DELETE FROM owlclaw_quota_bucket WHERE counter = v_own_counter
                AND (span = 0 AND bucket < (v_elapsed - c_minute) / c_minute_width
                    OR span = 1 AND bucket < (v_elapsed - c_day) / c_day_width);
            v_own_pending := 0;
        END IF;
        IF v_changed AND (v_i > v_count OR r_principal[v_i] IS DISTINCT FROM v_principal
            OR r_read[v_i] IS DISTINCT FROM v_read
            OR coalesce(r_now[v_i], v_clock) IS DISTINCT FROM v_now)
        THEN
            IF v_pending > 0 THEN
                INSERT INTO owlclaw_quota_bucket AS b VALUES
                    (v_counter, 0, v_elapsed / c_minute_width, v_pending),
                    (v_counter, 1, v_elapsed / c_day_width, v_pending)
                ON CONFLICT (counter, span, bucket) DO UPDATE SET calls = b.calls + excluded.calls;
                IF v_minute_last IS DISTINCT FROM v_elapsed / c_minute_width THEN
                    DELETE FROM owlclaw_quota_bucket WHERE counter = v_counter
                        AND (span = 0 AND bucket < (v_elapsed - c_minute) / c_minute_width
                            OR span = 1 AND bucket < (v_elapsed - c_day) / c_day_width);
                END IF;
            END IF;
            IF v_known THEN
                UPDATE owlclaw_quota_principal SET wall_ms = v_wall, elapsed_ms = v_elapsed,
                    month_start_ms = v_month_start, month_end_ms = v_month_end, spent = v_spent,
                    previous_start_ms = v_previous_start, previous_spent = v_previous_spent,
                    calls_total = v_calls_total, reads_total = v_reads_total
                WHERE principal = v_principal;
            ELSIF v_pending > 0 THEN
                INSERT INTO owlclaw_quota_principal VALUES (v_principal, v_wall, v_elapsed,
                    v_month_start, v_month_end, v_spent, v_previous_start, v_previous_spent,
                    v_calls_total, v_reads_total);
            END IF;
            v_pending := 0;
            v_changed := false;
        END IF;
        EXIT WHEN v_i > v_count;

        v_cost := r_cost[v_i];
        IF r_principal[v_i] IS DISTINCT FROM v_principal OR r_read[v_i] IS DISTINCT FROM v_read
            OR coalesce(r_now[v_i], v_clock) IS DISTINCT FROM v_now
        THEN
            v_principal := r_principal[v_i];
            v_read := r_read[v_i];
            v_now := coalesce(r_now[v_i], v_clock);
            v_capability := NULL;
            SELECT p.wall_ms, p.elapsed_ms, p.month_start_ms, p.month_end_ms, p.spent,
                p.previous_start_ms, p.previous_spent, p.calls_total, p.reads_total
            INTO v_wall, v_elapsed, v_month_start, v_month_end, v_spent,
                v_previous_start, v_previous_spent, v_calls_total, v_reads_total
            FROM owlclaw_quota_principal p WHERE p.principal = v_principal;
            v_known := FOUND;
            IF NOT v_known THEN
                v_wall := v_now;
                v_elapsed := v_now;
                v_month_start := -1;
                v_month_end := -1;
                v_spent := 0;
                v_previous_start := NULL;
                v_previous_spent := NULL;
                v_calls_total := 0;
                v_reads_total := 0;
            END IF;

            -- A clock that is set back stops time and never brings an earlier month's budget back.
            IF v_wall <= v_now THEN
                v_elapsed := v_elapsed + (v_now - v_wall);
                v_wall := v_now;
            ELSIF c_jitter < v_wall - v_now THEN
                v_wall := v_now;
                v_changed := true;
            END IF;
            IF v_wall < r_edge0[v_i] OR r_edge3[v_i] <= v_wall THEN
                verdict := 2;
                v_principal := NULL;
                v_changed := false;
                RETURN NEXT;
                v_i := v_i + 1;
                CONTINUE;
            END IF;
            IF v_month_end <= v_wall OR c_month_ahead < v_month_start - v_wall THEN
                IF v_month_end <= v_wall THEN
                    IF v_known THEN
                        v_previous_start := v_month_start;
                        v_previous_spent := v_spent;
                    END IF;
                    v_spent := 0;
                END IF;
                IF v_known THEN
                    DELETE FROM owlclaw_quota_dearest d WHERE d.principal = v_principal;
                END IF;
                v_changed := true;
                v_over := v_month_end > v_wall;
                IF v_wall < r_edge1[v_i] THEN
                    v_month_start := r_edge0[v_i];
                    v_month_end := r_edge1[v_i];
                ELSIF v_wall < r_edge2[v_i] THEN
                    v_month_start := r_edge1[v_i];
                    v_month_end := r_edge2[v_i];
                ELSE
                    v_month_start := r_edge2[v_i];
                    v_month_end := r_edge3[v_i];
                END IF;
                IF v_over THEN
                    -- A clock that ran wild was put right: what was spent before is spent.
                    IF v_previous_start = v_month_start THEN
                        v_spent := least(v_spent, c_most - v_previous_spent) + v_previous_spent;
                    END IF;
                    v_previous_start := NULL;
                    v_previous_spent := NULL;
                END IF;
            END IF;

            v_counter := NULL;
            SELECT c.counter INTO v_counter FROM owlclaw_quota_counter c
            WHERE c.principal = v_principal
                AND c.scope = CASE WHEN v_read THEN 'resource' ELSE 'tool' END;
            v_minute := 0;
            v_day := 0;
            v_minute_last := NULL;
            v_day_last := NULL;
            IF v_counter IS NOT NULL THEN
                SELECT coalesce(sum(b.calls) FILTER (WHERE b.span = 0), 0),
                    coalesce(sum(b.calls) FILTER (WHERE b.span = 1), 0),
                    max(b.bucket) FILTER (WHERE b.span = 0), max(b.bucket) FILTER (WHERE b.span = 1)
                INTO v_minute, v_day, v_minute_last, v_day_last
                FROM owlclaw_quota_bucket b WHERE b.counter = v_counter
                    AND (b.span = 0 AND b.bucket >= (v_elapsed - c_minute) / c_minute_width
                        OR b.span = 1 AND b.bucket >= (v_elapsed - c_day) / c_day_width);
            END IF;
            v_running := NULL;
            m_minute_limit := NULL;
            m_day_limit := NULL;
        END IF;

        v_own := r_own_minute[v_i] IS NOT NULL OR r_own_day[v_i] IS NOT NULL
            OR r_cooldown[v_i] IS NOT NULL;
        IF r_capability[v_i] IS DISTINCT FROM v_capability THEN
            v_capability := r_capability[v_i];
            v_capability_running := NULL;
            v_own_loaded := false;
            v_dearest_loaded := false;
            v_own_counter := NULL;
            v_own_used := NULL;
            v_own_minute := 0;
            v_own_day := 0;
            v_own_minute_last := NULL;
            v_own_day_last := NULL;
            m_own_minute_limit := NULL;
            m_own_day_limit := NULL;
        END IF;
        IF v_own AND NOT v_own_loaded THEN
            v_own_loaded := true;
            SELECT c.counter, c.used_ms INTO v_own_counter, v_own_used
            FROM owlclaw_quota_counter c
            WHERE c.principal = v_principal AND c.scope = v_capability;
            IF v_own_counter IS NOT NULL THEN
                SELECT coalesce(sum(b.calls) FILTER (WHERE b.span = 0), 0),
                    coalesce(sum(b.calls) FILTER (WHERE b.span = 1), 0),
                    max(b.bucket) FILTER (WHERE b.span = 0), max(b.bucket) FILTER (WHERE b.span = 1)
                INTO v_own_minute, v_own_day, v_own_minute_last, v_own_day_last
                FROM owlclaw_quota_bucket b WHERE b.counter = v_own_counter
                    AND (b.span = 0 AND b.bucket >= (v_elapsed - c_minute) / c_minute_width
                        OR b.span = 1 AND b.bucket >= (v_elapsed - c_day) / c_day_width);
            END IF;
        END IF;

        IF r_running[v_i] IS NOT NULL AND v_running IS NULL THEN
            SELECT count(*) INTO v_running FROM owlclaw_quota_reservation r
            WHERE r.principal = v_principal AND NOT r.is_read;
        END IF;
        IF r_capability_running[v_i] IS NOT NULL AND v_capability_running IS NULL THEN
            SELECT count(*) INTO v_capability_running FROM owlclaw_quota_reservation r
            WHERE r.capability = v_capability AND NOT EXISTS (
                SELECT 1 FROM owlclaw_quota_settlement s WHERE s.principal = r.principal
                    AND s.node = r.node AND s.sequence = r.sequence);
        END IF;
        v_cooldown_wait := greatest(v_own_used + r_cooldown[v_i] - v_elapsed, 0);

        -- What the dearest call of the tool has cost this month is held for the next one.
        v_held := v_cost;
        IF r_budget[v_i] IS NOT NULL AND NOT v_read THEN
            IF NOT v_dearest_loaded THEN
                v_dearest_loaded := true;
                v_dearest := (SELECT d.cost FROM owlclaw_quota_dearest d
                    WHERE d.principal = v_principal AND d.capability = v_capability);
            END IF;
            v_held := greatest(v_cost, v_dearest);
        END IF;
        v_fits := r_budget[v_i] IS NULL OR CASE
            WHEN v_held = 0 THEN NOT r_may_cost[v_i] OR v_spent < r_budget[v_i]
            ELSE v_spent <= r_budget[v_i] - v_held END;
        v_ok := v_fits
            AND (r_minute[v_i] IS NULL OR v_minute < r_minute[v_i])
            AND (r_day[v_i] IS NULL OR v_day < r_day[v_i])
            AND (r_own_minute[v_i] IS NULL OR v_own_minute < r_own_minute[v_i])
            AND (r_own_day[v_i] IS NULL OR v_own_day < r_own_day[v_i])
            AND coalesce(v_cooldown_wait, 0) = 0
            AND (r_running[v_i] IS NULL OR v_running < r_running[v_i])
            AND (r_capability_running[v_i] IS NULL
                OR v_capability_running < r_capability_running[v_i]);
        verdict := v_ok::int;
        minute_wait := 0;
        day_wait := 0;
        own_minute_wait := 0;
        own_day_wait := 0;
        IF r_sequence[v_i] IS NULL THEN
            NULL; -- only asked
        ELSIF v_ok THEN
            IF v_counter IS NULL THEN
                INSERT INTO owlclaw_quota_counter (principal, scope)
                VALUES (v_principal, CASE WHEN v_read THEN 'resource' ELSE 'tool' END)
                RETURNING counter INTO v_counter;
            END IF;
            IF v_own AND v_own_counter IS NULL THEN
                INSERT INTO owlclaw_quota_counter (principal, scope)
                VALUES (v_principal, v_capability) RETURNING counter INTO v_own_counter;
            END IF;
            INSERT INTO owlclaw_quota_reservation VALUES (p_node, r_sequence[v_i], v_principal,
                v_capability, v_read, v_held, v_month_start, v_counter,
                CASE WHEN v_own THEN v_own_counter END, v_elapsed, v_own_used,
                CASE WHEN r_budget[v_i] IS NOT NULL AND NOT v_read THEN v_cost END);
            v_changed := true;
            v_pending := v_pending + 1;
            v_minute := v_minute + 1;
            v_day := v_day + 1;
            v_spent := least(v_spent, c_most - v_held) + v_held;
            v_running := v_running + (NOT v_read)::int;
            v_capability_running := v_capability_running + 1;
            IF v_read THEN
                v_reads_total := v_reads_total + 1;
            ELSE
                v_calls_total := v_calls_total + 1;
            END IF;
            IF v_own THEN
                v_own_pending := v_own_pending + 1;
                v_own_minute := v_own_minute + 1;
                v_own_day := v_own_day + 1;
                v_own_used := v_elapsed;
            END IF;
            m_minute_limit := NULL;
            m_day_limit := NULL;
            m_own_minute_limit := NULL;
            m_own_day_limit := NULL;
        ELSE
            IF v_minute >= r_minute[v_i] THEN
                IF m_minute_limit IS DISTINCT FROM r_minute[v_i] THEN
                    m_minute_limit := r_minute[v_i];
                    m_minute := owlclaw_quota_wait(v_counter, 0::smallint, c_minute_width, c_minute,
                        v_elapsed, v_minute, r_minute[v_i]);
                END IF;
                minute_wait := m_minute;
            END IF;
            IF v_day >= r_day[v_i] THEN
                IF m_day_limit IS DISTINCT FROM r_day[v_i] THEN
                    m_day_limit := r_day[v_i];
                    m_day := owlclaw_quota_wait(v_counter, 1::smallint, c_day_width, c_day,
                        v_elapsed, v_day, r_day[v_i]);
                END IF;
                day_wait := m_day;
            END IF;
            IF v_own_minute >= r_own_minute[v_i] THEN
                IF m_own_minute_limit IS DISTINCT FROM r_own_minute[v_i] THEN
                    m_own_minute_limit := r_own_minute[v_i];
                    m_own_minute := owlclaw_quota_wait(v_own_counter, 0::smallint, c_minute_width,
                        c_minute, v_elapsed, v_own_minute, r_own_minute[v_i]);
                END IF;
                own_minute_wait := m_own_minute;
            END IF;
            IF v_own_day >= r_own_day[v_i] THEN
                IF m_own_day_limit IS DISTINCT FROM r_own_day[v_i] THEN
                    m_own_day_limit := r_own_day[v_i];
                    m_own_day := owlclaw_quota_wait(v_own_counter, 1::smallint, c_day_width, c_day,
                        v_elapsed, v_own_day, r_own_day[v_i]);
                END IF;
                own_day_wait := m_own_day;
            END IF;
        END IF;

        wall_ms := v_wall;
        month_end_ms := v_month_end;
        -- Told as it is if a call that is admitted costs what it is expected to.
        spent := v_spent - CASE WHEN v_ok AND r_sequence[v_i] IS NOT NULL
            THEN v_held - v_cost ELSE 0 END;
        held := v_held;
        minute := v_minute;
        day := v_day;
        own_minute := v_own_minute;
        own_day := v_own_day;
        -- The newest bucket is the last to go.
        minute_resets := CASE WHEN v_pending > 0
            THEN (v_elapsed / c_minute_width + 1) * c_minute_width + c_minute - v_elapsed
            ELSE (v_minute_last + 1) * c_minute_width + c_minute - v_elapsed END;
        day_resets := CASE WHEN v_pending > 0
            THEN (v_elapsed / c_day_width + 1) * c_day_width + c_day - v_elapsed
            ELSE (v_day_last + 1) * c_day_width + c_day - v_elapsed END;
        own_minute_resets := CASE WHEN v_own_pending > 0
            THEN (v_elapsed / c_minute_width + 1) * c_minute_width + c_minute - v_elapsed
            ELSE (v_own_minute_last + 1) * c_minute_width + c_minute - v_elapsed END;
        own_day_resets := CASE WHEN v_own_pending > 0
            THEN (v_elapsed / c_day_width + 1) * c_day_width + c_day - v_elapsed
            ELSE (v_own_day_last + 1) * c_day_width + c_day - v_elapsed END;
        cooldown_wait := v_cooldown_wait;
        running := v_running;
        capability_running := v_capability_running;
        RETURN NEXT;
        v_i := v_i + 1;
    END LOOP;
END $$;

-- Ends a node unless its beat is another one by now. Its calls run no longer; what they have cost
-- counts where it is on record, and what they were expected to cost where it is not. Tells how many
-- of those there were, or nothing if the node lives.
CREATE OR REPLACE FUNCTION owlclaw_quota_end_node(p_node bigint, p_beat bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_names text[];
    v_lock int;
    v_open owlclaw_quota_reservation;
    v_ended bigint := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(1331121230, p_node::int);
    DELETE FROM owlclaw_quota_node WHERE node = p_node AND (p_beat IS NULL OR beat = p_beat);
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    v_names := ARRAY(SELECT DISTINCT r.principal FROM owlclaw_quota_reservation r
        WHERE r.node = p_node);
    FOR v_lock IN SELECT hashtext(l.name) FROM unnest(v_names) l (name) GROUP BY 1 ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(1331121233, v_lock);
    END LOOP;
    PERFORM owlclaw_quota_settle(v_names);
    FOR v_open IN DELETE FROM owlclaw_quota_reservation r WHERE r.node = p_node RETURNING r.* LOOP
        v_ended := v_ended + 1;
        IF v_open.estimate <> v_open.cost THEN
            PERFORM owlclaw_quota_charge(v_open.principal, v_open.capability,
                v_open.month_start_ms, v_open.cost, NULL, v_open.estimate);
            v_open.cost := v_open.estimate;
        END IF;
        INSERT INTO owlclaw_quota_orphan VALUES (v_open.*);
    END LOOP;
    RETURN v_ended;
END $$;

-- Forgets windows of principals that have not been seen for more than a day, and principals that
-- have not been seen for two months: by then nothing of theirs counts. At most `p_most` at once;
-- tells how many, and nothing while another node does the same.
CREATE OR REPLACE FUNCTION owlclaw_quota_tidy(p_most int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_now CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    v_day CONSTANT bigint := v_now - 25::bigint * 60 * 60 * 1000;
    v_months CONSTANT bigint := v_now - 62::bigint * 24 * 60 * 60 * 1000;
    v_names text[];
    v_lock int;
BEGIN
    IF NOT pg_try_advisory_xact_lock(1331121236, 0) THEN
        RETURN 0;
    END IF;
    v_names := ARRAY(
        SELECT p.principal FROM owlclaw_quota_principal p
        WHERE p.wall_ms < v_day AND NOT EXISTS (
                SELECT 1 FROM owlclaw_quota_reservation r WHERE r.principal = p.principal)
            AND (p.wall_ms < v_months OR EXISTS (
                SELECT 1 FROM owlclaw_quota_counter c
                JOIN owlclaw_quota_bucket b ON b.counter = c.counter
                WHERE c.principal = p.principal))
        LIMIT p_most);
    FOR v_lock IN SELECT hashtext(l.name) FROM unnest(v_names) l (name) GROUP BY 1 ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(1331121233, v_lock);
    END LOOP;
    -- Somebody may have come back before it was locked.
    v_names := ARRAY(SELECT p.principal FROM owlclaw_quota_principal p
        WHERE p.principal = ANY (v_names) AND p.wall_ms < v_day);
    DELETE FROM owlclaw_quota_bucket b USING owlclaw_quota_counter c
    WHERE b.counter = c.counter AND c.principal = ANY (v_names);
    DELETE FROM owlclaw_quota_counter c USING owlclaw_quota_principal p
    WHERE c.principal = p.principal AND p.principal = ANY (v_names) AND p.wall_ms < v_months;
    DELETE FROM owlclaw_quota_principal p
    WHERE p.principal = ANY (v_names) AND p.wall_ms < v_months;
    DELETE FROM owlclaw_quota_dearest d WHERE d.principal = ANY (v_names)
        AND NOT EXISTS (SELECT 1 FROM owlclaw_quota_principal p WHERE p.principal = d.principal);
    -- By now their month is over, and no cost changes anything any more.
    DELETE FROM owlclaw_quota_orphan o WHERE o.at_ms < v_months;
    RETURN cardinality(v_names);
END $$;
