//! A catalogue that follows its directory.

use std::{collections::BTreeSet, error::Error, path::Path, sync::Arc, time::Duration};

use documents::{Follow, Listing, WatchError, WatchGuard};
use tokio::sync::watch;
use tracing::{debug, warn};

use crate::{catalog::SkillCatalog, problem::Problem, scan::ScanOptions};

/// Options of a watch.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Options of each scan.
    pub scan: ScanOptions,
    /// Time without a change before a change is scanned.
    pub quiet_period: Duration,
    /// Interval at which a directory is searched where the system does not announce changes.
    pub poll_interval: Duration,
    /// Never ask the system to announce changes. For network file systems, where it would be silent.
    pub poll_only: bool,
    /// The catalogue that the first scan follows: that of an earlier process ([`SkillMemory::catalog`]).
    ///
    /// [`SkillMemory::catalog`]: crate::SkillMemory::catalog
    pub before: SkillCatalog,
}

impl WatchOptions {
    /// 150 ms of quiet, and where it must be, polling every two seconds.
    #[must_use]
    pub fn new(scan: ScanOptions) -> Self {
        let usual = documents::WatchOptions::default();
        Self {
            scan,
            quiet_period: usual.quiet_period,
            poll_interval: usual.poll_interval,
            poll_only: usual.poll_only,
            before: SkillCatalog::default(),
        }
    }
}

/// Scans a directory, and again whenever something in it changes. Blocks on the disk for the first
/// scan. A catalogue is published only if it differs from the one before.
///
/// The directory need not exist yet, unless it is [required](ScanOptions::required): without one there are no
/// skills. Once it was there, it is required. Problems are logged
/// when they first appear. What a skill says of its tool stays known when its file is broken, moved
/// away or deleted: see [`SkillCatalog::following`], until [`WatchGuard::forget`].
///
/// # Errors
///
/// [`WatchError`]. If the system cannot announce changes, or stops to, the directory is polled.
pub fn watch(
    mut options: WatchOptions,
) -> Result<(watch::Receiver<Arc<SkillCatalog>>, WatchGuard), WatchError> {
    let before = std::mem::take(&mut options.before);
    let (publisher, mut receiver) = watch::channel(Arc::new(before));
    let follower = Follower {
        scan: options.scan,
        publisher,
        known_problems: BTreeSet::new(),
    };
    let options = documents::WatchOptions {
        quiet_period: options.quiet_period,
        poll_interval: options.poll_interval,
        poll_only: options.poll_only,
    };
    let guard = documents::watch("skill-watch", options, follower)?;
    receiver.mark_unchanged();
    Ok((receiver, guard))
}

struct Follower {
    scan: ScanOptions,
    publisher: watch::Sender<Arc<SkillCatalog>>,
    known_problems: BTreeSet<String>,
}

impl Follow for Follower {
    fn root(&self) -> &Path {
        self.scan.root()
    }

    fn listing(&self) -> Listing {
        let walk = self.scan.limits.walk();
        documents::list(self.scan.root(), &walk, &mut Vec::new())
    }

    fn read(&mut self, forgets: bool) {
        let (catalog, problems) = SkillCatalog::scan(&self.scan);
        let catalog = catalog.following(&self.publisher.borrow(), forgets);
        // Once it was there, it does not go without a word.
        let is_there = !problems.iter().any(Problem::is_no_directory);
        self.scan.is_required |= is_there;
        if let Some(hold) = catalog.incomplete().filter(|_| forgets) {
            warn!(
                problem = hold.problem,
                hint = hold.hint,
                "no rule of a skill that is gone is forgotten, since not all skills can be read"
            );
        }
        let mut known_problems = BTreeSet::new();
        for problem in problems {
            let text = problem.to_string();
            if !self.known_problems.contains(&text) {
                let error = &problem as &dyn Error;
                warn!(error, hint = problem.hint(), "a skill has a problem");
            }
            known_problems.insert(text);
        }
        self.known_problems = known_problems;
        self.publisher.send_if_modified(|current| {
            let is_other = **current != catalog;
            if is_other {
                debug!(skills = catalog.len(), "the skills have changed");
                *current = Arc::new(catalog);
            }
            is_other
        });
    }
}
