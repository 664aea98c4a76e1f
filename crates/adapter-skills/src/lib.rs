//! SKILL.md files as skill:// resources.
