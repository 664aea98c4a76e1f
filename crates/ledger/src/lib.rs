//! The append-only record of what was called, by whom, and how it ended.
