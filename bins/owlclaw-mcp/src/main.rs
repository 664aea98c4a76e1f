//! `owlclaw-mcp`: the server under its own name.

use std::process::ExitCode;

use owlclaw_mcp::{Program, run};

fn main() -> ExitCode {
    run(Program::OwlclawMcp, std::env::args_os())
}
