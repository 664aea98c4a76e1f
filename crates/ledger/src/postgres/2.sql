-- A decision and its being taken back are kept with how whoever decided proved who they are, and why.
-- `decision` is what was decided, whatever has become of it.
ALTER TABLE owlclaw_ledger.approval
    ADD COLUMN decision text,
    ADD COLUMN decided_proof text,
    ADD COLUMN decided_reason text,
    ADD COLUMN revoked_by text,
    ADD COLUMN revoked_us bigint,
    ADD COLUMN revoked_proof text,
    ADD COLUMN revoked_reason text;
