//! Skills, for the suite's scenarios of the Skills extension: a directory of them, served next to
//! what the program itself holds.

use adapter_skills::{ScanOptions, SkillCatalog};
use mcp_server::{CombinedResources, Resources, SkillResources};
use std::sync::{Arc, LazyLock};

/// Milliseconds for which clients may keep what they read of a skill.
const TTL_MS: u64 = 60_000;

/// Looked for once: the offer changes, and the files do not.
static SKILLS: LazyLock<Arc<SkillCatalog>> = LazyLock::new(|| {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/skills");
    let (catalog, problems) = SkillCatalog::scan(&ScanOptions::new(directory));
    assert!(problems.is_empty(), "the fixture is broken: {problems:?}");
    Arc::new(catalog)
});

/// `resources`, and the skills besides.
pub(crate) fn and(resources: impl Resources + 'static) -> Arc<dyn Resources> {
    let skills = SkillResources::new(Arc::clone(&SKILLS), TTL_MS).with_documents_listed();
    Arc::new(CombinedResources::new(vec![
        Arc::new(resources),
        Arc::new(skills),
    ]))
}
