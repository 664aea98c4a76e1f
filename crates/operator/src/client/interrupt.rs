//! The end by SIGINT of a command that nothing else ends, since it waits for somebody to read its output.

use std::process;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::signal::ctrl_c;

use crate::output::SIGNALLED;

/// Time for cancelling and closing after SIGINT. A second SIGINT does not wait for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// True while a connection is open, which SIGINT closes first.
static IS_SPEAKING: AtomicBool = AtomicBool::new(false);
static WATCH: Once = Once::new();

/// Time in which SIGINT is heeded by whoever has a connection.
pub(super) struct Speaking(());

impl Drop for Speaking {
    fn drop(&mut self) {
        IS_SPEAKING.store(false, Ordering::Relaxed);
    }
}

/// Has a thread see to it that SIGINT ends the process, from now on.
pub(super) fn watch() -> Speaking {
    IS_SPEAKING.store(true, Ordering::Relaxed);
    WATCH.call_once(|| {
        let thread = thread::Builder::new().name("interrupt".to_owned());
        // Without it SIGINT is heeded by the connection alone.
        let _ = thread.spawn(end);
    });
    Speaking(())
}

fn end() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async {
        if ctrl_c().await.is_err() {
            return;
        }
        if IS_SPEAKING.load(Ordering::Relaxed) {
            tokio::select! {
                _ = ctrl_c() => {}
                () = tokio::time::sleep(PATIENCE) => {}
            }
        }
        process::exit(SIGNALLED.into());
    });
}
