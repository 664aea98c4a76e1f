//! The Model Context Protocol as data, for every released revision.
