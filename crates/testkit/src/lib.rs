//! What the tests share: wire peers and the official schemas.
