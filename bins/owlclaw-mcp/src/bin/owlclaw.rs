//! `owlclaw mcp-server …`: the server as a word of the `owlclaw` command.

use std::process::ExitCode;

use owlclaw_mcp::{Program, run};

fn main() -> ExitCode {
    run(Program::Owlclaw, std::env::args_os())
}
