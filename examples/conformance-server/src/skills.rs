//! Skills, for the suite's scenarios of the Skills extension: a directory of them, served next to
//! what the program itself holds.

use adapter_skills::{ScanOptions, SkillCatalog};
use gateway::{JoinedResources, Resources, SkillResources};
use std::sync::Arc;

/// How long clients may keep what they were told of skills, in milliseconds.
const TTL_MS: u64 = 60_000;

/// `resources`, and the skills in `skills/` besides.
pub(crate) fn with_skills(resources: impl Resources + 'static) -> Arc<dyn Resources> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/skills");
    let (catalog, problems) = SkillCatalog::scan(&ScanOptions::new(directory));
    for problem in problems {
        eprintln!("{problem} ({})", problem.hint());
    }
    let skills = SkillResources::new(Arc::new(catalog), TTL_MS);
    Arc::new(JoinedResources::new(vec![
        Arc::new(resources),
        Arc::new(skills),
    ]))
}
