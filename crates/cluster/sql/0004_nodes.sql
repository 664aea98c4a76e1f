-- Servers that have this database, as they say of themselves now and then. One that has stopped says so; one that was
-- killed says nothing any more.
CREATE TABLE owlclaw_cluster.node (
    id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    version text NOT NULL,
    sessions bigint,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    has_stopped boolean NOT NULL DEFAULT false
);
CREATE INDEX node_by_sign ON owlclaw_cluster.node (seen_at);
