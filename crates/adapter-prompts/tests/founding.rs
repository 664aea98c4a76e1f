//! The four sample templates of document 004, §2.3.3, as files: what its own code made of them was wrong.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, path::Path};

use adapter_prompts::{PromptCatalog, PromptOptions};

#[test]
fn the_templates_of_document_004_are_filled_in() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/prompts");
    let catalog = PromptCatalog::scan(&PromptOptions::new(root));
    assert!(catalog.problems().is_empty(), "{:?}", catalog.problems());
    let fill = |name: &str, pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        let arguments: BTreeMap<_, _> = pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let version = catalog.version(name).unwrap().unwrap();
        version.render(&arguments).unwrap()[0].text.clone()
    };
    // Defaults apply, and what is in a value is not evaluated.
    let text = fill(
        "email.reply@1.0",
        &[
            ("email_content", "Hello {{signature}}"),
            ("reply_points", r#"["Thank them", "{{#if x}}"]"#),
        ],
    );
    let expected = "You need to reply to the following email:\n\nHello {{signature}}\n\nWrite a professional \
                    reply that addresses the following points:\n- Thank them\n- {{#if x}}\n\nSign the email as \
                    AI Assistant.";
    assert_eq!(text, expected);
    // A condition, and a loop over an object with its keys.
    let product = [
        ("product_name", "Tea"),
        ("category", "Drinks"),
        ("features", r#"["hot"]"#),
        ("target_audience", "all"),
    ];
    let text = fill("product.description", &product);
    assert!(
        !text.contains("Technical") && text.contains("approximately 200 words."),
        "{text}"
    );
    let specs = [
        ("technical_specs", r#"{"weight": 2, "size": "s"}"#),
        ("seo_keywords", "tea"),
    ];
    let text = fill("product.description", &[&product[..], &specs].concat());
    assert!(
        text.contains("Specifications:\n- size: s\n- weight: 2\n"),
        "{text}"
    );
    assert!(text.ends_with("SEO keywords: tea."), "{text}");
    // Members of items, and of an argument.
    let text = fill(
        "code.function",
        &[
            ("task_description", "Add."),
            (
                "input_parameters",
                r#"[{"name": "a", "type": "int", "description": "one"}]"#,
            ),
            ("output", r#"{"type": "int", "description": "sum"}"#),
            ("unit_tests", "true"),
        ],
    );
    assert!(text.contains("Write a Python function"), "{text}");
    assert!(
        text.contains("- a: int - one\n\nOutput: int - sum\n"),
        "{text}"
    );
    assert!(
        text.ends_with("4. Unit tests to verify the function works correctly"),
        "{text}"
    );
    let text = fill(
        "data.analysis_report",
        &[
            ("report_title", "Sales"),
            ("data_source", "d"),
            ("time_period", "t"),
            ("analysis_objectives", "o"),
            ("methodology", r#"["m"]"#),
            ("data_points", "{}"),
            ("required_analyses", r#"["trend"]"#),
        ],
    );
    assert!(
        text.starts_with("# Data Analysis Report: Sales\n\n## Introduction\n"),
        "{text}"
    );
    assert!(!text.contains("Comparative") && text.contains("Describe 3 key visualizations."));
    // Choices are suggested.
    let version = catalog.version("code.function").unwrap().unwrap();
    assert_eq!(
        version.suggestions("language", "j").unwrap(),
        ["JavaScript", "Java"]
    );
}
