use super::*;
use adapter_skills::ScanOptions;
use adapter_tools::{Arguments, Executor, ToolCx, ToolError, ToolOutput};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::json;

struct Nothing;

impl Executor for Nothing {
    fn execute<'a>(
        &'a self,
        _: ToolCx,
        _: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async { Ok("nothing".into()) }.boxed()
    }
}

fn tool(name: &'static str) -> Tool {
    Tool::new(name, json!({ "type": "object" }), Nothing)
}

/// An offer of these tools, with a skill of each one's name that says `block`.
fn offer(tools: Vec<Tool>, block: &str) -> Offer {
    let directory = tempfile::tempdir().unwrap();
    for tool in &tools {
        let at = directory.path().join("c").join(tool.name());
        std::fs::create_dir_all(&at).unwrap();
        let name = tool.name();
        let text = format!("---\nname: {name}\ndescription: d\nowlclaw: {block}\n---\n# {name}\n");
        std::fs::write(at.join("SKILL.md"), text).unwrap();
    }
    let (skills, problems) = SkillCatalog::scan(&ScanOptions::new(directory.path()));
    assert!(problems.is_empty(), "{problems:?}");
    Offer::new(
        ToolSet::new(tools).unwrap(),
        Arc::new(NoResources),
        Some(&skills),
        IncludeSkill::None,
        Duration::from_secs(300),
    )
}

const BLOCK: &str = "{idempotent: true, read_only: false, destructive: false, open_world: true,
                      task: required, timeout_seconds: 7}";

#[test]
fn what_a_skill_says_of_a_tool_holds_for_it() {
    let offer = offer(vec![tool("a")], BLOCK);
    let said = offer.tools().get("a").unwrap();
    let annotations = Annotations {
        read_only: Some(false),
        destructive: Some(false),
        idempotent: Some(true),
        open_world: Some(true),
    };
    assert_eq!(said.annotations(), annotations);
    assert_eq!(said.task_support(), TaskSupport::Required);
    assert_eq!(said.timeout(), Some(Duration::from_secs(7)));
    // And clients are told.
    let policy = governance::Policy::new(governance::PolicySpec {
        ..governance::PolicySpec::default()
    });
    let told = offer.described()[0].seen_by("anna".into(), &policy.unwrap(), true);
    assert_eq!(told.annotations.unwrap().idempotent_hint, Some(true));
    let governance = told.meta.get("io.owlclaw/governance").unwrap();
    let governance: serde_json::Value = governance.parse().unwrap();
    assert_eq!(governance["timeout_seconds"], 7.0);
}

#[test]
fn what_a_tool_says_itself_holds_more() {
    let own = Annotations {
        read_only: Some(true),
        destructive: None,
        idempotent: Some(false),
        open_world: None,
    };
    let tool = tool("a")
        .with_annotations(own)
        .with_timeout(Duration::from_secs(1))
        .with_task_support(TaskSupport::Forbidden);
    let offer = offer(vec![tool], BLOCK);
    let said = offer.tools().get("a").unwrap();
    assert_eq!(said.annotations().read_only, Some(true));
    assert_eq!(said.annotations().idempotent, Some(false));
    assert_eq!(said.annotations().destructive, Some(false));
    assert_eq!(said.timeout(), Some(Duration::from_secs(1)));
    assert_eq!(said.task_support(), TaskSupport::Forbidden);
}
