-- Sessions of clients of 2025-11-25 and before. One that has ended stays as long as it would have, so that it does not
-- come back with what a server says of it later.
CREATE TABLE owlclaw_cluster.session (
    id text COLLATE "C" PRIMARY KEY,
    principal text NOT NULL,
    state text NOT NULL,
    resources text[] NOT NULL,
    tasks text[] NOT NULL,
    lives bigint NOT NULL DEFAULT 0,
    last_used timestamptz NOT NULL DEFAULT clock_timestamp(),
    has_ended boolean NOT NULL DEFAULT false
);
CREATE INDEX session_by_use ON owlclaw_cluster.session (last_used);

-- What clients have sent to one server that concerns another: for a moment.
CREATE TABLE owlclaw_cluster.session_message (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    sent_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX session_message_by_age ON owlclaw_cluster.session_message (sent_at);

-- Keeps a session that is new, or what has changed of it: of two servers that change it, neither undoes what the
-- other has done.
CREATE FUNCTION owlclaw_cluster.keep_session(
    given_id text, given_principal text, given_state text, more_resources text[], less_resources text[],
    more_tasks text[], less_tasks text[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO owlclaw_cluster.session AS known (id, principal, state, resources, tasks)
    VALUES (given_id, given_principal, given_state, more_resources, more_tasks)
    ON CONFLICT (id) DO UPDATE SET state = given_state, last_used = clock_timestamp(),
        resources = ARRAY(SELECT unnest(known.resources || more_resources)
                          EXCEPT SELECT unnest(less_resources)),
        tasks = ARRAY(SELECT unnest(known.tasks || more_tasks) EXCEPT SELECT unnest(less_tasks))
    WHERE NOT known.has_ended AND known.principal = given_principal;
    PERFORM pg_notify('owlclaw_cluster', 'session ' || given_id);
END $$;
