//! HTTP services as tools.
