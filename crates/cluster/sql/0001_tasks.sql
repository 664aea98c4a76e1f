-- Microseconds since the epoch, by the one clock that all servers have.
CREATE FUNCTION owlclaw_cluster.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

CREATE TABLE owlclaw_cluster.task (
    id text COLLATE "C" PRIMARY KEY,
    principal text NOT NULL,
    capability text NOT NULL,
    protocol_version text NOT NULL,
    created_us bigint NOT NULL,
    updated_us bigint NOT NULL,
    expires_us bigint NOT NULL,
    sequence bigint NOT NULL,
    state text NOT NULL,
    is_error boolean NOT NULL,
    -- Texts of handlers may have characters that the type text has not.
    message bytea,
    text bytea NOT NULL
);
CREATE INDEX task_by_age ON owlclaw_cluster.task (principal, protocol_version, created_us, id);
CREATE INDEX task_by_expiry ON owlclaw_cluster.task (expires_us);
CREATE INDEX task_by_principal ON owlclaw_cluster.task (principal, expires_us);

-- What is known only of tasks that are not over. It goes with the end of the task, in its transaction.
CREATE TABLE owlclaw_cluster.task_run (
    id text COLLATE "C" PRIMARY KEY REFERENCES owlclaw_cluster.task ON DELETE CASCADE,
    attempt bigint NOT NULL,
    owner text NOT NULL,
    lease_until_us bigint NOT NULL
);
CREATE INDEX task_run_by_owner ON owlclaw_cluster.task_run (owner);
CREATE INDEX task_run_by_lease ON owlclaw_cluster.task_run (lease_until_us);
CREATE TABLE owlclaw_cluster.task_call (
    id text COLLATE "C" PRIMARY KEY REFERENCES owlclaw_cluster.task_run ON DELETE CASCADE,
    call bytea NOT NULL
);
-- Answers of clients on their way to the server that carries the task out.
CREATE TABLE owlclaw_cluster.task_answer (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL REFERENCES owlclaw_cluster.task_run ON DELETE CASCADE,
    answers bytea NOT NULL
);
CREATE INDEX task_answer_by_task ON owlclaw_cluster.task_answer (id);

CREATE FUNCTION owlclaw_cluster.task_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND new.state NOT IN ('working', 'input_required') THEN
        DELETE FROM owlclaw_cluster.task_run WHERE id = new.id;
    END IF;
    PERFORM pg_notify('owlclaw_cluster', 'task ' || old.id);
    RETURN NULL;
END $$;
CREATE TRIGGER task_changed AFTER UPDATE OR DELETE ON owlclaw_cluster.task
    FOR EACH ROW EXECUTE FUNCTION owlclaw_cluster.task_changed();

-- The end of a lease: so long from now on, or, for tests, the time that a caller says.
CREATE FUNCTION owlclaw_cluster.lease_end(lease bigint, by_database boolean) RETURNS bigint
LANGUAGE sql VOLATILE AS
$$ SELECT CASE WHEN NOT by_database THEN lease WHEN lease <= 0 THEN 0
               ELSE owlclaw_cluster.now_us() + lease END $$;

-- Adds a task. 0: it is there; 1: another has its name; 2 and 3: there are too many, of its principal or in all.
CREATE FUNCTION owlclaw_cluster.create_task(
    given owlclaw_cluster.task, owner text, lease bigint, by_database boolean, call bytea,
    max_of_principal bigint, max_total bigint
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    known owlclaw_cluster.task;
    counted bigint;
BEGIN
    -- Whoever counts does so before the next one adds.
    PERFORM pg_advisory_xact_lock(1331121236, 1);
    SELECT * INTO known FROM owlclaw_cluster.task WHERE id = given.id;
    IF FOUND THEN
        RETURN CASE WHEN known IS NOT DISTINCT FROM given THEN 0 ELSE 1 END;
    END IF;
    SELECT count(*) INTO counted FROM (SELECT 1 FROM owlclaw_cluster.task
        WHERE principal = given.principal AND given.created_us < expires_us LIMIT max_of_principal) AS counting;
    IF max_of_principal <= counted THEN RETURN 2; END IF;
    SELECT count(*) INTO counted FROM (SELECT 1 FROM owlclaw_cluster.task
        WHERE given.created_us < expires_us LIMIT max_total) AS counting;
    IF max_total <= counted THEN RETURN 3; END IF;
    INSERT INTO owlclaw_cluster.task SELECT given.*;
    IF given.state IN ('working', 'input_required') THEN
        INSERT INTO owlclaw_cluster.task_run
            VALUES (given.id, 1, owner, owlclaw_cluster.lease_end(lease, by_database));
        IF call IS NOT NULL THEN
            INSERT INTO owlclaw_cluster.task_call VALUES (given.id, call);
        END IF;
    END IF;
    RETURN 0;
END $$;

-- Gives a task whose lease has run out to another owner, as one step of its sequence. No row: it was not to be had.
CREATE FUNCTION owlclaw_cluster.claim_task(
    given owlclaw_cluster.task, claimant text, lease bigint, by_database boolean, now_us bigint
) RETURNS TABLE (attempts bigint, stored_call bytea) LANGUAGE plpgsql AS $$
DECLARE
    run owlclaw_cluster.task_run;
    known owlclaw_cluster.task;
BEGIN
    -- The same order of locks as everywhere: the task first.
    SELECT * INTO known FROM owlclaw_cluster.task WHERE id = given.id FOR UPDATE;
    SELECT * INTO run FROM owlclaw_cluster.task_run WHERE id = given.id FOR UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    IF by_database THEN now_us := owlclaw_cluster.now_us(); END IF;
    IF run.lease_until_us <= now_us
        AND known.sequence = given.sequence - 1
        AND (known.principal, known.capability, known.protocol_version, known.created_us)
            = (given.principal, given.capability, given.protocol_version, given.created_us)
    THEN
        UPDATE owlclaw_cluster.task SET updated_us = given.updated_us, expires_us = given.expires_us,
            sequence = given.sequence, state = given.state, is_error = given.is_error,
            message = given.message, text = given.text
            WHERE id = given.id;
        UPDATE owlclaw_cluster.task_run SET attempt = run.attempt + 1, owner = claimant,
            lease_until_us = owlclaw_cluster.lease_end(lease, by_database)
            WHERE id = given.id;
        -- What was asked was asked by the attempt before.
        DELETE FROM owlclaw_cluster.task_answer WHERE id = given.id;
        run.attempt := run.attempt + 1;
    ELSIF run.owner <> claimant OR known IS DISTINCT FROM given THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT run.attempt,
        (SELECT task_call.call FROM owlclaw_cluster.task_call WHERE task_call.id = given.id);
END $$;
