//! One frame of bytes to JSON-RPC 2.0 messages and back.
