//! What is on offer, and what happens to every call of it.
