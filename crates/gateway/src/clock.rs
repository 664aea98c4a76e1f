/// Tells the time: microseconds since the epoch, UTC. A function, so that tests bring their own.
pub type Clock = fn() -> u64;

/// The clock of this machine.
pub fn system_clock() -> u64 {
    ledger::system_now_us()
}

/// The same instant as governance counts it.
pub(crate) fn timestamp(at_us: u64) -> governance::Timestamp {
    governance::Timestamp(at_us / 1_000)
}
