//! Entries and everything they consist of, with their encoding.

pub(crate) mod approval;
pub(crate) mod codec;
pub(crate) mod entry;
pub(crate) mod id;
pub(crate) mod kept;
pub(crate) mod note;
pub(crate) mod operation;
pub(crate) mod seal;
