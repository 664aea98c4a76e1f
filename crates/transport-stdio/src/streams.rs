//! The process's own standard streams, without a thread between them and the runtime where the
//! system allows it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
#[cfg(unix)]
use tokio::net::{UnixStream, unix::pipe};

/// Standard input.
#[derive(Debug)]
pub enum StandardInput {
    /// A pipe, which most clients connect.
    #[cfg(unix)]
    Pipe(pipe::Receiver),
    /// A socket, which Node.js connects.
    #[cfg(unix)]
    Socket(UnixStream),
    /// A file or a terminal, read by a thread of its own.
    Other(tokio::io::Stdin),
}

/// Standard output.
#[derive(Debug)]
pub enum StandardOutput {
    /// A pipe, which most clients connect.
    #[cfg(unix)]
    Pipe(pipe::Sender),
    /// A socket, which Node.js connects.
    #[cfg(unix)]
    Socket(UnixStream),
    /// A file or a terminal, written by a thread of its own.
    Other(tokio::io::Stdout),
}

/// Opens the process's standard streams.
///
/// Pipes and sockets are put into non-blocking mode, which whoever shares them notices: nothing else
/// in the process should write to standard output (R2.4 forbids it anyway).
///
/// # Errors
///
/// When a stream is closed or cannot be watched.
///
/// # Panics
///
/// Outside of a tokio runtime with I/O enabled.
#[cfg(unix)]
pub fn standard_streams() -> io::Result<(StandardInput, StandardOutput)> {
    use std::{fs::File, os::fd::AsFd, os::unix::fs::FileTypeExt};

    let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let kind = file.metadata()?.file_type();
    let input = if kind.is_fifo() {
        StandardInput::Pipe(pipe::Receiver::from_file(file)?)
    } else if kind.is_socket() {
        StandardInput::Socket(socket(file)?)
    } else {
        StandardInput::Other(tokio::io::stdin())
    };
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let kind = file.metadata()?.file_type();
    let output = if kind.is_fifo() {
        StandardOutput::Pipe(pipe::Sender::from_file(file)?)
    } else if kind.is_socket() {
        StandardOutput::Socket(socket(file)?)
    } else {
        StandardOutput::Other(tokio::io::stdout())
    };
    Ok((input, output))
}

#[cfg(unix)]
fn socket(file: std::fs::File) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(std::os::fd::OwnedFd::from(file));
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Opens the process's standard streams.
///
/// # Errors
///
/// None on this system.
#[cfg(not(unix))]
pub fn standard_streams() -> io::Result<(StandardInput, StandardOutput)> {
    Ok((
        StandardInput::Other(tokio::io::stdin()),
        StandardOutput::Other(tokio::io::stdout()),
    ))
}

impl AsyncRead for StandardInput {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            #[cfg(unix)]
            Self::Pipe(pipe) => Pin::new(pipe).poll_read(cx, buffer),
            #[cfg(unix)]
            Self::Socket(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Other(stdin) => Pin::new(stdin).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for StandardOutput {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            #[cfg(unix)]
            Self::Pipe(pipe) => Pin::new(pipe).poll_write(cx, bytes),
            #[cfg(unix)]
            Self::Socket(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Other(stdout) => Pin::new(stdout).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            #[cfg(unix)]
            Self::Pipe(pipe) => Pin::new(pipe).poll_flush(cx),
            #[cfg(unix)]
            Self::Socket(socket) => Pin::new(socket).poll_flush(cx),
            Self::Other(stdout) => Pin::new(stdout).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            #[cfg(unix)]
            Self::Pipe(pipe) => Pin::new(pipe).poll_shutdown(cx),
            #[cfg(unix)]
            Self::Socket(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Other(stdout) => Pin::new(stdout).poll_shutdown(cx),
        }
    }
}
