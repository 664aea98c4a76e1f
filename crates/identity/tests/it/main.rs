//! What keys, tokens and certificates prove, and what they do not.

mod certificates;
mod fetching;
mod forge;
mod keys;
mod tokens;
