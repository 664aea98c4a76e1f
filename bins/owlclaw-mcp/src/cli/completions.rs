//! Completion scripts for shells, and pages for `man`.

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;

use super::{Owlclaw, OwlclawMcp, Program};

/// A shell that completes words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShellName {
    /// source <(owlclaw-mcp completions bash)
    Bash,
    /// owlclaw-mcp completions fish > ~/.config/fish/completions/owlclaw-mcp.fish
    Fish,
    /// owlclaw-mcp completions zsh > "${fpath[1]}/_owlclaw-mcp"
    Zsh,
}

fn command(program: Program) -> Command {
    match program {
        Program::OwlclawMcp => OwlclawMcp::command(),
        Program::Owlclaw => Owlclaw::command(),
    }
}

/// The script that teaches `shell` the words of `program`.
pub(crate) fn script(program: Program, shell: ShellName) -> Vec<u8> {
    let shell = match shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Fish => Shell::Fish,
        ShellName::Zsh => Shell::Zsh,
    };
    let mut command = command(program);
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    if let (Program::OwlclawMcp, Shell::Bash) = (program, shell) {
        return with_one_name(&script);
    }
    script
}

/// The script of clap_complete 4.6 calls a program whose name has a hyphen differently where it finds
/// out what is being typed and where it looks up what may follow; then nothing follows anything.
fn with_one_name(script: &[u8]) -> Vec<u8> {
    let script = String::from_utf8_lossy(script);
    let script = script.replace("owlclaw__subcmd__mcp__", "owlclaw__mcp__");
    script.into_bytes()
}

/// The manual page of `program` itself.
pub(crate) fn manual(program: Program) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command(program)).render(&mut page)?;
    Ok(page)
}

/// Writes a manual page for `program` and for each of its words into a directory that is there.
pub(crate) fn manuals(program: Program, directory: &Path) -> io::Result<()> {
    clap_mangen::generate_to(command(program), directory)
}
