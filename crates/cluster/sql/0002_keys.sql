-- Keys that seal what travels through clients. The newest that every server has had the time to read seals; the
-- ones before it open what they have sealed.
CREATE TABLE owlclaw_cluster.sealing_key (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key bytea NOT NULL CHECK (length(key) = 32),
    made_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The keys, the one that seals first. `candidate` becomes one if it is time for another.
CREATE FUNCTION owlclaw_cluster.sealing_keys(candidate bytea) RETURNS SETOF bytea LANGUAGE plpgsql AS $$
DECLARE
    present bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(1331121236, 2);
    IF NOT EXISTS (SELECT 1 FROM owlclaw_cluster.sealing_key
                   WHERE clock_timestamp() - interval '1 day' < made_at) THEN
        INSERT INTO owlclaw_cluster.sealing_key (key) VALUES (candidate);
        PERFORM pg_notify('owlclaw_cluster', 'keys');
    END IF;
    -- Servers read every hour, so after two all of them have a key. The first of all has nobody to wait for.
    SELECT number INTO present FROM owlclaw_cluster.sealing_key
        ORDER BY made_at <= clock_timestamp() - interval '2 hours' DESC,
            CASE WHEN made_at <= clock_timestamp() - interval '2 hours' THEN -number ELSE number END
        LIMIT 1;
    -- What it has sealed is valid for an hour.
    DELETE FROM owlclaw_cluster.sealing_key
        WHERE number < present AND made_at < clock_timestamp() - interval '2 days';
    RETURN QUERY SELECT key FROM owlclaw_cluster.sealing_key ORDER BY number = present DESC, number DESC;
END $$;
