//! Tools: what they look like, how they run, and the set of them on offer.
