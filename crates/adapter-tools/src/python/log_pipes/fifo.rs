//! Named pipes: a process that somebody else forks can open nothing else.

use std::{
    fs, io,
    path::{Path, PathBuf},
};
use tokio::net::unix::pipe;

/// A named pipe, whose name is gone when this is dropped; whoever has it open goes on using it.
#[derive(Debug)]
pub(in super::super) struct Fifo(PathBuf);

impl Fifo {
    /// Makes one that only we may open, and opens its end for reading.
    pub(in super::super) fn make(path: PathBuf) -> io::Result<(Self, pipe::Receiver)> {
        make(&path)?;
        let fifo = Self(path);
        let receiver = pipe::OpenOptions::new().open_receiver(&fifo.0)?;
        Ok((fifo, receiver))
    }

    pub(in super::super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(not(target_vendor = "apple"))]
fn make(path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, Mode, mkfifoat};
    Ok(mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?)
}

/// There is no safe binding for this system.
#[cfg(target_vendor = "apple")]
fn make(path: &Path) -> io::Result<()> {
    let status = std::process::Command::new("/usr/bin/mkfifo")
        .args(["-m", "600"])
        .arg(path)
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("mkfifo failed: {status}"))),
    }
}
