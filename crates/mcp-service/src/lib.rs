//! The seam between transports and handlers.
