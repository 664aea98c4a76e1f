//! The vocabulary, written by one side and read by the other.

mod common;

mod carried;
mod examples;
mod liberal;
mod messages;
mod never_panics;
mod requests;
mod results;
mod vocabulary;
