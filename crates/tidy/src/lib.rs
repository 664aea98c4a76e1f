//! Checks of the repository itself.
